"""`evaluate.py`: scores stored embeddings, a run's network, or an off-the-shelf backbone."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from dml.config.identity import method_name
from dml.config.schema import Config, EvaluateConfig
from dml.core.atomic_io import write_json
from dml.core.errors import ConfigError, UserError
from dml.core.progress import open_display, show_phase
from dml.data.image_index import ImageIndex
from dml.data.loaders import LoaderOptions
from dml.models.embedder import Embedder
from dml.retrieval import mean_average_precision
from dml.runs.build import Builder
from dml.runs.console import console, print_line, scores_tables
from dml.runs.figures.neighbor_grid import draw_neighbors
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.job_list import FOLDS, protocol_test
from dml.runs.jobs.resource_errors import translate_resource_errors
from dml.runs.jobs.throughput import loading_processes
from dml.runs.load import load_config, load_embedder
from dml.runs.scores.embeddings_file import load_embeddings, save_embeddings
from dml.runs.scores.evaluator import Evaluator, SplitEmbeddings
from dml.training.device import autocast, resolve_device, set_precision

MODEL = "repeat0-fold0"  # the model of a run that is scored
# Options that are used; others are ignored for stored embeddings, or decided by the run.
ALWAYS = {"recall_at", "evaluation.backend", "device", "outputs"}
FOR_EMBEDDINGS = {"embeddings"} | ALWAYS
FOR_RUN = (
    {"run", "save", "precision"}
    | ALWAYS
    | {f"data.{name}" for name in ("root", "reader.root", "workers", "eval_batch_size")}
)


def evaluate(config: EvaluateConfig, given: Collection[str] = ()) -> dict[str, Any]:
    """Scores stored embeddings, the best network of a run, or an off-the-shelf backbone.

    Args:
        config: names what to score.
        given: options that the user gave. The data of a run is expected at the path that the run
            used, unless `data.root` is among them.

    Returns:
        The content of `evaluation.json`, which is written beside the embeddings, into the run
        folder, or under `outputs/evaluations/` for a network without a run.

    Raises:
        ConfigError: options without effect.
        UserError: embeddings, run or data cannot be read or scored.
    """
    _check_options(config, given)
    with open_display(console):
        return _evaluate(config, given)


def _evaluate(config: EvaluateConfig, given: Collection[str]) -> dict[str, Any]:
    device = resolve_device(config.device)
    if config.embeddings is not None:
        path = Path(config.embeddings)
        embeddings = load_embeddings(path, device)
        recall_at = (1, 2, 4, 8) if config.recall_at is None else tuple(config.recall_at)
        try:
            scores = _scores(embeddings, recall_at, config.evaluation.backend)
        except UserError as error:
            reason = str(error).removeprefix("evaluation: ")
            raise UserError(f"embeddings: {path} cannot be scored: {reason}") from error
        result = {"name": path.name, "stand_in": False, **scores}
        return _write_scores(result, path.with_suffix(".evaluation.json"))
    if config.run is not None:
        folder = RunFolder(config.run)
        trained = load_config(folder.path)
        if "data.root" in given:
            trained = _with_data_root(trained, config.data.root)
        if "precision" not in given:  # the precision of the run itself
            config = config.model_copy(update={"precision": trained.precision})
        index = _read_index(trained)  # before the weights: a wrong path is reported at once
        embedder = load_embedder(trained, folder, MODEL)
        method = method_name(trained.loss["name"], trained.method["name"])
        name, target = f"{method} on {trained.data.name}", folder.path
        models = trained.protocol.repeats * FOLDS[trained.protocol.splits]
        if models > 1:  # the scores of the run are means over all of them
            name += f", {MODEL} of {models} models"
    else:
        trained, index = config, _read_index(config)
        embedder = Builder(config).embedder()
        weights = " with random weights" if config.backbone.get("weights") == "none" else ""
        name = f"{config.backbone['name']}{weights} on {config.data.name}"
        target = (
            Path(config.outputs) / "evaluations" / f"{config.data.name}-{config.backbone['name']}"
        )
    return _score_network(config, trained, index, embedder.to(device), name, target)


def _read_index(config: Config) -> ImageIndex:
    with show_phase(f"reading {config.data.name}"):
        return Builder(config).index()


def _check_options(config: EvaluateConfig, given: Collection[str]) -> None:
    """Raises ConfigError for given options without effect."""
    if config.embeddings is not None:
        used, reason = FOR_EMBEDDINGS, "stored embeddings are scored without it"
    elif config.run is not None:
        used, reason = FOR_RUN, "the run's own config decides it"
    else:
        return
    if ignored := sorted(set(given) - used):
        raise ConfigError([f"{name}: {reason}; leave it out" for name in ignored])


@translate_resource_errors
def _score_network(
    config: EvaluateConfig,
    trained: Config,
    index: ImageIndex,
    embedder: Embedder,
    name: str,
    target: Path,
) -> dict[str, Any]:
    """Embeds the test images and writes scores, embeddings and the picture into `target`."""
    device, builder = resolve_device(config.device), Builder(trained)
    transforms = builder.transforms(embedder)
    split = protocol_test(trained.protocol.splits, index)
    evaluator = Evaluator(
        split,
        transforms.test,
        LoaderOptions(
            transforms.to_input,
            device,
            loading_processes(config, index, device),
            builder.source(index),
        ),
        config.data.eval_batch_size,
    )
    set_precision(config.precision, device)
    with autocast(config.precision, device):
        embeddings = evaluator.embed(embedder)
    recall_at = index.recall_at if config.recall_at is None else tuple(config.recall_at)
    result = {
        "name": name,
        "data": trained.data.name,
        "stand_in": index.stand_in,
        "backbone": trained.backbone["name"],
        "run": config.run,
        "embedding_size": embedder.embedding_size,
        **_scores(embeddings, recall_at, config.evaluation.backend),
    }
    if config.save is not None:
        save_embeddings(target / "embeddings.npz", embeddings, split, config.save)
        print_line(f"embeddings  {target / 'embeddings.npz'}")
    with show_phase("drawing the neighbors"):
        picture = target / "figures" / "evaluation.png"
        draw_neighbors(split, {"nearest": embeddings}, transforms.test, name, picture)
    print_line(f"picture     {target / 'figures' / 'evaluation.png'}")
    return _write_scores(result, target / "evaluation.json")


def _scores(
    embeddings: SplitEmbeddings, recall_at: tuple[int, ...], backend: str
) -> dict[str, Any]:
    """Metrics of the split; if it has a gallery, also of all images as one set."""
    with show_phase("scoring"):
        return _score_both(embeddings, recall_at, backend)


def _score_both(
    embeddings: SplitEmbeddings, recall_at: tuple[int, ...], backend: str
) -> dict[str, Any]:
    scores: dict[str, Any] = {"metrics": _with_full_ranking(embeddings, recall_at, backend)}
    if embeddings.gallery is not None and embeddings.gallery_labels is not None:
        together = SplitEmbeddings(
            torch.cat([embeddings.query, embeddings.gallery]),
            torch.cat([embeddings.query_labels, embeddings.gallery_labels]),
        )
        scores["metrics_without_split"] = _with_full_ranking(together, recall_at, backend)
    return scores


def _with_full_ranking(
    embeddings: SplitEmbeddings, recall_at: tuple[int, ...], backend: str
) -> dict[str, Any]:
    """Metrics of the split, and mAP over the full ranking beside MAP@R."""
    found: dict[str, Any] = {}
    for name, value in embeddings.score(recall_at, backend).items():
        found[name] = value
        if name == "map_at_r":
            found["mean_average_precision"] = mean_average_precision(
                embeddings.query,
                embeddings.query_labels,
                embeddings.gallery,
                embeddings.gallery_labels,
            )
    return found


def _with_data_root(config: Config, root: str) -> Config:
    """Returns the config with another path of the data."""
    reader = dict(config.data.reader)
    if "root" in reader:
        reader["root"] = root
    data = config.data.model_copy(update={"root": root, "reader": reader})
    return config.model_copy(update={"data": data})


def _write_scores(result: dict[str, Any], path: Path) -> dict[str, Any]:
    write_json(path, result)
    for table in scores_tables(result):
        console.print(table)
    print_line(f"scores      {path}")
    return result
