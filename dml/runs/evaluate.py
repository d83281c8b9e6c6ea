"""What `evaluate.py` does: pick a network or stored embeddings, score them, keep the scores."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from dml.config.schema import Config, EvaluateConfig
from dml.core.atomic_io import write_json
from dml.core.errors import ConfigError, UserError
from dml.models.embedder import Embedder
from dml.runs import build
from dml.runs.console import console, scores_table
from dml.runs.figures.neighbors import draw_neighbors
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.resource_errors import translate_resource_errors
from dml.runs.load import load_config, load_embedder
from dml.runs.protocols import FOLDS, tested_split
from dml.runs.scores.embeddings_file import load_embeddings, save_embeddings
from dml.runs.scores.evaluator import Embedded, Evaluator
from dml.training.precision import autocast, set_convolutions

MODEL = "repeat0-fold0"  # of a run, the one that is scored
# what is looked at; the rest is decided by the run, or means nothing to stored embeddings
FOR_EMBEDDINGS = {"embeddings", "recall_at", "device", "outputs"}
FOR_RUN = {"run", "recall_at", "device", "outputs", "save", "precision"} | {
    f"data.{name}" for name in ("root", "reader.root", "workers", "eval_batch_size")
}


def score(config: EvaluateConfig, said: Collection[str] = ()) -> dict[str, Any]:
    """Scores stored embeddings, a run's best network, or a backbone as it comes.

    Args:
        config: what to score.
        said: options that the user gave. A run's data is looked for where it was when it was
            trained, unless `data.root` is among them.

    Returns:
        What is also written to `evaluation.json`: beside the embeddings, in the run folder, or
        under `outputs/evaluations/` for a network without a run.

    Raises:
        ConfigError: options that would be without effect.
        UserError: embeddings, a run or data that cannot be read or scored.
    """
    _refuse_idle(config, said)
    device = build.resolve_device(config.device)
    if config.embeddings is not None:
        path = Path(config.embeddings)
        embedded = load_embeddings(path, device)
        recall_at = (1, 2, 4, 8) if config.recall_at is None else tuple(config.recall_at)
        try:
            scores = _scores(embedded, recall_at)
        except UserError as error:
            reason = str(error).removeprefix("evaluation: ")
            raise UserError(f"embeddings: {path} cannot be scored: {reason}") from error
        result = {"name": path.name, "stand_in": False, **scores}
        return _keep(result, path.with_suffix(".evaluation.json"))
    if config.run is not None:
        folder = RunFolder(config.run)
        trained = load_config(folder.path)
        if "data.root" in said:
            trained = _at_root(trained, config.data.root)
        if "precision" not in said:  # as the run scored itself
            config = config.model_copy(update={"precision": trained.precision})
        embedder = load_embedder(trained, folder, MODEL)
        name, target = f"{trained.loss['name']} on {trained.data.name}", folder.path
        models = trained.protocol.repeats * FOLDS[trained.protocol.splits]
        if models > 1:  # the run's own scores are means over all of them
            name += f", {MODEL} of {models} models"
    else:
        trained, embedder = config, build.build_embedder(config)
        name = f"{config.backbone['name']} on {config.data.name}"
        target = (
            Path(config.outputs) / "evaluations" / f"{config.data.name}-{config.backbone['name']}"
        )
    return _score_network(config, trained, embedder.to(device), name, target)


def _refuse_idle(config: EvaluateConfig, said: Collection[str]) -> None:
    """Raises ConfigError for options that the user gave and that nothing would look at."""
    if config.embeddings is not None:
        used, reason = FOR_EMBEDDINGS, "stored embeddings are scored without it"
    elif config.run is not None:
        used, reason = FOR_RUN, "the run's own config decides it"
    else:
        return
    if idle := sorted(set(said) - used):
        raise ConfigError([f"{name}: {reason}; leave it out" for name in idle])


@translate_resource_errors()
def _score_network(
    config: EvaluateConfig, trained: Config, embedder: Embedder, name: str, target: Path
) -> dict[str, Any]:
    """Embeds the test images and writes scores, embeddings and the picture into `target`."""
    device = build.resolve_device(config.device)
    index = build.build_index(trained)
    transforms = build.build_transforms(trained, embedder)
    split = tested_split(trained.protocol.splits, index)
    evaluator = Evaluator(
        split,
        transforms.test,
        transforms.to_input,
        batch_size=config.data.eval_batch_size,
        workers=config.data.workers,
        device=device,
        source=build.open_source(trained, index, device),
    )
    set_convolutions(config.precision, device)
    with autocast(config.precision, device):
        embedded = evaluator.embed(embedder)
    recall_at = index.recall_at if config.recall_at is None else tuple(config.recall_at)
    result = {
        "name": name,
        "data": index.name,
        "stand_in": index.stand_in,
        "backbone": trained.backbone["name"],
        "run": config.run,
        "embedding_size": embedder.embedding_size,
        **_scores(embedded, recall_at),
    }
    if config.save is not None:
        save_embeddings(target / "embeddings.npz", embedded, split, config.save)
        console.print(f"embeddings  {target / 'embeddings.npz'}")
    draw_neighbors(split, embedded, transforms.test, name, target / "figures" / "evaluation.png")
    console.print(f"picture     {target / 'figures' / 'evaluation.png'}")
    return _keep(result, target / "evaluation.json")


def _scores(embedded: Embedded, recall_at: tuple[int, ...]) -> dict[str, Any]:
    """Metrics of the split; where it has a gallery, also of all its images among themselves."""
    scores: dict[str, Any] = {"metrics": embedded.score(recall_at)}
    if embedded.gallery is not None and embedded.gallery_labels is not None:
        joined = Embedded(
            torch.cat([embedded.query, embedded.gallery]),
            torch.cat([embedded.query_labels, embedded.gallery_labels]),
        )
        scores["metrics_without_split"] = joined.score(recall_at)
    return scores


def _at_root(config: Config, root: str) -> Config:
    """The same run with its data in another place."""
    reader = dict(config.data.reader)
    if "root" in reader:
        reader["root"] = root
    data = config.data.model_copy(update={"root": root, "reader": reader})
    return config.model_copy(update={"data": data})


def _keep(result: dict[str, Any], path: Path) -> dict[str, Any]:
    write_json(path, result)
    for table in scores_table(result):
        console.print(table)
    console.print(f"scores      {path}")
    return result
