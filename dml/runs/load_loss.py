"""The loss of a trained run, with its best weights: `dml.load(run, loss=True)`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dml.config.schema import Config
from dml.core.errors import UserError, first_line
from dml.data.image_index import ImageIndex
from dml.data.protocol import create_jobs
from dml.losses.class_logits import class_logits
from dml.retrieval.embeddings import SplitEmbeddings
from dml.runs.build import Builder
from dml.runs.folder.run_folder import RunFolder
from dml.training.checkpoint_files import read_checkpoint


class TrainedLoss(nn.Module):
    """A loss with the classes that it was trained on.

    Args:
        loss: with its weights.
        classes: C names, in the order of its classes; numbers as text where classes have no names.
    """

    def __init__(self, loss: nn.Module, classes: list[str]) -> None:
        super().__init__()
        self.loss, self.classes = loss, classes

    def forward(self, *args: Any, **options: Any) -> Tensor:
        """Returns the loss of embeddings and labels 0…C−1, as in training."""
        value: Tensor = self.loss(*args, **options)
        return value

    def logits(self, embeddings: Tensor) -> Tensor:
        """Returns logits B×C of embeddings B×D; see `dml.losses.class_logits`.

        Raises:
            UserError: the loss has none.
        """
        try:
            return class_logits(self.loss, embeddings)
        except ValueError as error:
            raise UserError(str(error)) from error

    def probabilities(self, embeddings: Tensor) -> Tensor:
        """Returns probabilities B×C of `classes`, which sum to 1 over the classes.

        Raises:
            UserError: see `logits`.
        """
        return self.logits(embeddings).softmax(dim=1)

    def accuracy(self, embeddings: Tensor, names: Sequence[str]) -> float:
        """Returns the share of images (0–1) whose class has the largest logit.

        Args:
            embeddings: B×D.
            names: B names of classes; an image of a class that was not trained is never right.

        Raises:
            UserError: see `logits`.
        """
        largest_B = self.logits(embeddings).argmax(dim=1).tolist()
        right = 0
        for position, name in zip(largest_B, names, strict=True):
            right += self.classes[position] == name
        return right / len(names)


def score_loss(
    config: Config,
    run: str | Path,
    embedding_size: int,
    embeddings: SplitEmbeddings,
    index: ImageIndex,
) -> dict[str, float]:
    """Returns `accuracy_loss` of the queries of a closed set, by the logits of the first model.

    Nothing for a method without a loss, and for a loss without logits.

    Args:
        config: of the run.
        run: the run folder.
        embedding_size: of its network.
        embeddings: of the test images.
        index: the images of the run.
    """
    names = _class_names(index, embeddings.query_labels.tolist())
    try:
        trained = load_loss(config, run, embedding_size, 0, 0, index)
        trained = trained.to(embeddings.query.device)
        return {"accuracy_loss": trained.accuracy(embeddings.query, names)}
    except UserError:
        return {}


def _class_names(index: ImageIndex, labels: Sequence[int]) -> list[str]:
    """Returns the names of labels; numbers as text where classes have no names."""
    names = index.class_names
    return [str(names[label] if names else label) for label in labels]


def load_loss(
    config: Config,
    folder: str | Path,
    embedding_size: int,
    repeat: int,
    fold: int,
    index: ImageIndex | None = None,
) -> TrainedLoss:
    """Returns the loss of a model in evaluation mode, with the classes of its images.

    Args:
        config: of the run.
        folder: of the run.
        embedding_size: of its network.
        repeat, fold: of the model.
        index: its images; None: they are read.

    Raises:
        UserError: the images are gone or others, or the weights do not fit.
    """
    builder = Builder(config)
    index = index or builder.index()
    run = RunFolder(folder)
    if run.has_other_images(index):
        raise UserError(
            f"load: {run.describe_other_images(index)} of {folder}, so that the classes of its "
            f"loss are not known; put them back, or load without loss=True"
        )
    protocol, noise = config.protocol, config.data.label_noise
    jobs = create_jobs(protocol.splits, protocol.repeats, index, noise, config.seed)
    job = next(job for job in jobs if job.key == (repeat, fold))
    weights = Path(folder, "checkpoints", f"repeat{repeat}-fold{fold}", "best.pt")
    method = builder.method(job.train.num_classes, embedding_size)
    checkpoint = read_checkpoint(weights, "load", "put the file back, or train the run again")
    try:
        method.load_state_dict(checkpoint["method"])
    except Exception as error:  # of many classes: a missing entry, another shape
        raise UserError(f"load: {weights} has another loss: {first_line(error)}") from error
    loss = getattr(method, "loss", None)
    if not isinstance(loss, nn.Module):
        raise UserError(f"load: method {config.method['name']} has no loss to load")
    return TrainedLoss(loss, _class_names(index, job.train.classes.tolist())).eval()
