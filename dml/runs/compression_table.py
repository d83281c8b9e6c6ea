"""Scores of smaller vectors, `evaluation.compress`: of a network, and of a file of embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dml.core.errors import UserError
from dml.core.progress import show_task
from dml.data.image_index import Subset
from dml.data.protocol import Split
from dml.retrieval.compression import FITTED_ROWS
from dml.retrieval.compression_scores import Fitting, score_forms
from dml.retrieval.embedding_file import find_compression
from dml.retrieval.embeddings import SplitEmbeddings
from dml.runs.compressed_rows import TRAINING, check_size
from dml.runs.seen_classes import read_texts_of

COMPRESS = "evaluation.compress"


@dataclass(frozen=True)
class SmallerVectors:
    """Forms that are scored for a network, and the training images by which they are fitted."""

    forms: Sequence[str]
    training: Subset

    def check(self, width: int, scored: int) -> None:
        """Checks the forms before images are embedded.

        Args:
            width: dimensions of the embeddings.
            scored: images that are scored, by which forms are fitted without training images.

        Raises:
            UserError: a form has too many dimensions.
        """
        for form in self.forms:
            check_size(form, width, len(self.training) or scored, COMPRESS)

    def score(
        self,
        embed: Callable[[Split], SplitEmbeddings],
        scored: SplitEmbeddings,
        recall_at: Sequence[int],
        backend: str,
    ) -> dict[str, Any]:
        """Returns `compression` with the scores of the forms; empty without any.

        Args:
            embed: returns the embeddings of images.
            scored: those that are scored.
            recall_at, backend: see `dml.retrieval.compression_scores.score_forms`.

        Raises:
            UserError: as `score_forms`.
        """
        if not self.forms:
            return {}
        fitting = fit_on_training(embed, self.training, scored)
        with show_task("scoring smaller vectors"):
            scores = score_forms(scored, self.forms, fitting, recall_at, backend)
        return {"compression": scores}


def fit_on_training(
    embed: Callable[[Split], SplitEmbeddings], training: Subset, scored: SplitEmbeddings
) -> Fitting:
    """Returns embeddings of training images, by which forms are fitted.

    Args:
        embed: returns the embeddings of images.
        training: of more than 50,000 images so many are embedded, evenly spaced; none: the forms
            are fitted on the scored images.
        scored: embeddings of the images that are scored.
    """
    if not len(training):
        return _fit_on_scored(scored, "there are no training images")
    number = min(len(training), FITTED_ROWS)
    rows = np.linspace(0, len(training) - 1, number).astype(np.int64)
    points = embed(Split(Subset(training.index, training.rows[rows]))).query
    return Fitting(points.cpu().numpy(), f"{number:,} training images", is_scored=False)


def _fit_on_scored(scored: SplitEmbeddings, reason: str) -> Fitting:
    """Returns the gallery that is scored, or the queries without one."""
    points = scored.query if scored.gallery is None else scored.gallery
    description = f"the {len(points):,} scored images themselves ({reason})"
    return Fitting(points.cpu().numpy(), description, is_scored=True)


def check_uncompressed(source: Path, forms: Sequence[str]) -> None:
    """Raises UserError if the vectors of a file, which was read, are compressed already."""
    if not forms:
        return
    compression = find_compression(source)
    if compression is not None:
        raise UserError(
            f"{COMPRESS}: {source} holds vectors as {compression.form.name}; leave it out here, or "
            f"evaluate a file that was written without --compress"
        )


def score_file_forms(
    source: Path,
    embeddings: SplitEmbeddings,
    forms: Sequence[str],
    recall_at: Sequence[int],
    backend: str,
) -> dict[str, Any]:
    """Returns the scores of forms of a file's vectors (`dml.retrieval.compression_scores`).

    Rows of the split train fit the forms and are not scored; of a file without any, all rows do
    both.

    Args:
        source: the file.
        embeddings: its content.
        forms: of `evaluation.compress`.
        recall_at: values of K of Recall@K.
        backend: see `dml.retrieval.retrieval_metrics`.

    Raises:
        UserError: as `score_forms`.
    """
    splits = read_texts_of(source)["splits"]
    is_training = splits == TRAINING
    can_be_divided = embeddings.gallery is None and len(splits) == len(embeddings.query)
    fitting = _fit_on_scored(embeddings, "the file has no rows of the split train")
    if can_be_divided and is_training.any() and not is_training.all():
        count = int(is_training.sum())
        points = embeddings.query[torch.from_numpy(is_training)].cpu().numpy()
        fitting = Fitting(points, f"{count:,} rows of the split train", is_scored=False)
        others = torch.from_numpy(~is_training)
        embeddings = SplitEmbeddings(embeddings.query[others], embeddings.query_labels[others])
    with show_task("scoring smaller vectors"):
        return score_forms(embeddings, forms, fitting, recall_at, backend)
