"""Scores of the network of a run, or of one without a run."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from dml.config.identity import method_name
from dml.config.schema import Config, EvaluateConfig
from dml.core.errors import UserError
from dml.core.option_values import SEEN_CLASSES, has_seen_classes
from dml.core.outputs import check_output
from dml.core.progress import show_task
from dml.data.image_index import ImageIndex, describe_images
from dml.data.protocol import FOLDS, Split, create_jobs, protocol_test
from dml.models.embedder import Embedder
from dml.retrieval.embeddings import SplitEmbeddings, is_file_of, save_embeddings
from dml.runs.build import Builder
from dml.runs.category_scores import means_of_categories
from dml.runs.console import print_line
from dml.runs.error_files import ErrorFiles, images_of_split
from dml.runs.error_page import ClosedSet
from dml.runs.evaluation.measures import (
    MEASURES,
    measure_network,
    measures_of_network,
    not_scores,
    smaller_vectors,
)
from dml.runs.evaluation.outputs import (
    EvaluationOutputs,
    folder_of_network,
    folder_of_run,
    name_images,
)
from dml.runs.evaluation.scores import score_embeddings
from dml.runs.folder.code_changes import describe_changed_code
from dml.runs.folder.run_folder import RunFolder, load_config
from dml.runs.load import load_embedder
from dml.runs.load_loss import score_loss
from dml.runs.model import Model
from dml.runs.seen_classes import describe_seen
from dml.training.device import resolve_device, set_precision

BY = "evaluation.by"
OF_LOADING = ("data.workers", "data.eval_batch_size")
OF_IMAGES = ("data.max_pixels", "data.skip_corrupt")  # of a run, unless they are typed


def score_network(
    config: EvaluateConfig, typed: Collection[str]
) -> tuple[dict[str, Any], Path, list[str]]:
    """Returns the scores of the test images, the path of their file, and names of further metrics.

    Writes embeddings beside it.
    """
    device = resolve_device(config.device)
    trained = _config_of_network(config, typed).on_device(device.type == "cuda")
    builder = Builder(trained)
    index = _read_images(builder, has_run=config.run is not None)
    for note in describe_images(index):
        print_line(f"note: {note}")
    split = protocol_test(trained.protocol.splits, index)
    is_divided = has_seen_classes(trained.protocol.splits) and (index.roles == "train").any()
    if config.run is not None:
        _check_run(config.run, trained, index, split, is_divided)
    embedder = _open_network(config, builder)
    is_untrained = config.run is None and _note_random_weights(builder)
    target, name, source = _name_scores(config, typed, trained, index, is_divided)
    measures = measures_of_network(config, typed, trained)
    outputs = EvaluationOutputs.check(config, target, name, measures, source=source)
    stored, origin = target / "embeddings.npz", f"evaluate {outputs.origin}"
    _check_stored(config, stored, origin)
    training = _training_images(trained, index)
    smaller = smaller_vectors(config, typed, trained, training.query)
    smaller.check(embedder.embedding_size, len(split.query))
    set_precision(trained.precision, device)
    model = Model(builder, embedder.to(device), index, device, builder.source(index))
    embeddings = model.embed(split)
    references = model.embed_references(training)
    scores = score_embeddings(config, embeddings, index.recall_at, trained)
    scores |= measure_network(model, config.run, measures, embeddings, MEASURES in typed)
    scores |= _accuracies(model, embeddings, references, config.run)
    result: dict[str, Any] = {
        "name": name,
        "stand_in": index.stand_in,
        "embedding_size": embedder.embedding_size,
        "metrics": scores,
    }
    if is_untrained:
        result["untrained"] = True
    if source:
        result["source"] = source
    by = config.evaluation.by if BY in typed else trained.evaluation.by
    if by is not None:
        result["categories"] = model.evaluator(split).score_categories(embeddings)
        scores |= means_of_categories(result["categories"])
    result |= smaller.score(
        model.embed, embeddings, config.recall_at or index.recall_at, trained.evaluation.backend
    )
    if config.save is not None:
        save_embeddings(stored, embeddings, split.names, config.save, origin)
        print_line(f"embeddings  {stored}")
    if outputs.errors.wanted:
        closed_set = _identify(model, embeddings, references, training)
        _write_errors(outputs.errors, model, split, embeddings, closed_set)
    outputs.draw_curve(scores, embeddings)
    names = [*trained.evaluation.metrics, *config.evaluation.metrics, *not_scores(measures)]
    return result, outputs.scores, names


def _note_random_weights(builder: Builder) -> bool:
    """Returns whether a network has random weights, and says so; those of users may load some."""
    backbone = builder.config.backbone
    if backbone.get("weights", "unknown") not in (None, "none"):
        return False
    print_line(
        f"note: {backbone['name']} has random weights: these are scores before any training; give "
        f"run=<run folder>, or a network with weights"
    )
    return True


def _read_images(builder: Builder, has_run: bool) -> ImageIndex:
    """Returns the index of the images, after the weights of a network without a run are there."""
    title = f"reading {builder.config.data.variant}"
    with show_task(title):
        dataset = builder.read_dataset()  # before the weights: a wrong path is reported at once
    if not has_run:
        builder.fetch_weights()  # before all images are decoded
    with show_task(title):
        return builder.index(dataset)


def _config_of_network(config: EvaluateConfig, typed: Collection[str]) -> Config:
    """Returns the config of the network: of its run, or of the command; with its loading."""
    trained = cast(Config, config)
    if config.run is not None:
        root = config.data.root if "data.root" in typed else None
        trained = load_config(config.run, root, config.trust)
    of_command = {*OF_LOADING, *(name for name in OF_IMAGES if name in typed)}
    loaded = {name.removeprefix("data.") for name in of_command}
    loading = config.data.model_dump(include=loaded)
    return trained.model_copy(update={"data": trained.data.model_copy(update=loading)})


def _open_network(config: EvaluateConfig, builder: Builder) -> Embedder:
    """Returns the network of the run, or of the command."""
    if config.run is not None:
        return load_embedder(builder.config, config.run, 0, 0)
    torch.manual_seed(config.seed)  # of weights that are not pretrained
    return builder.embedder()


def _name_scores(
    config: EvaluateConfig,
    typed: Collection[str],
    trained: Config,
    index: ImageIndex,
    is_divided: bool,
) -> tuple[Path, str, str]:
    """Returns the folder of the scores, the name of what is scored, and that of its images.

    The last one is empty for a named dataset, and for the images of the run.

    Args:
        config: of the command.
        typed: options that the user gave.
        trained: the config of the network.
        index: the images.
        is_divided: whether they are those of a closed set.
    """
    source = name_images(trained)
    if config.run is not None:
        if not _has_other_images(config.run, typed, index):
            source = ""
        folder, name = folder_of_run(config, typed, source), _name_run(trained)
    else:
        folder = folder_of_network(config, is_divided)
        name = f"{trained.backbone['name']} on {config.data.variant}"
    if is_divided:
        name += f", {SEEN_CLASSES}"
    return folder, name, source


def _has_other_images(run: str, typed: Collection[str], index: ImageIndex) -> bool:
    """Returns whether images are not those of a run; of an exported network, if they are typed."""
    folder = RunFolder(run)
    if folder.fingerprint() is None:
        return "data.root" in typed
    return folder.has_other_images(index)


def _check_stored(config: EvaluateConfig, path: Path, origin: str) -> None:
    """Raises UserError if embeddings are to be stored in a file of something else."""
    if config.save is not None:
        ours = partial(is_file_of, origin)
        check_output(path, "save", (), ours, config.overwrite, hint="overwrite=true")


def _write_errors(
    files: ErrorFiles,
    model: Model,
    split: Split,
    embeddings: SplitEmbeddings,
    closed_set: ClosedSet | None,
) -> None:
    """Writes the page and the table of the queries; see `ErrorFiles.write`."""
    images = (*images_of_split(split), model.index.class_names)
    files.write(embeddings, *images, model.config.evaluation.backend, closed_set)


def _identify(
    model: Model,
    embeddings: SplitEmbeddings,
    references: SplitEmbeddings | None,
    training: Split,
) -> ClosedSet | None:
    """Returns the classes of test images by training images; None without a closed set.

    Args:
        model: of the images.
        embeddings: of the test images.
        references: of the training images; None without a closed set.
        training: their split.
    """
    if references is None:
        return None
    images, _ = images_of_split(training)
    return ClosedSet(model.identify(embeddings, references), images)


def _accuracies(
    model: Model, embeddings: SplitEmbeddings, references: SplitEmbeddings | None, run: str | None
) -> dict[str, float]:
    """Returns the accuracies of a closed set: by training images, and by the loss of a run.

    Args:
        model: of the images that are scored.
        embeddings: of the test images.
        references: of the training images; None without a closed set.
        run: the run folder.
    """
    if references is None:
        return {}
    accuracies = model.accuracies(embeddings, references)
    if run is not None:
        size = model.embedder.embedding_size
        accuracies |= score_loss(model.config, run, size, embeddings, model.index)
    return accuracies


def _name_run(trained: Config) -> str:
    """Returns loss, method and data of a run, and which of its models is evaluated."""
    method = method_name(trained.loss["name"], trained.method["name"])
    name = f"{method} on {trained.data.variant}"
    models = trained.protocol.repeats * FOLDS[trained.protocol.splits]
    if models > 1:
        name += f", the first of {models} models"
    return name


def _training_images(trained: Config, index: ImageIndex) -> Split:
    """Returns the images by which the first model of a run predicts classes; none of others."""
    protocol, rows = trained.protocol, index.subset("train")
    if not has_seen_classes(protocol.splits) or not len(rows):
        return Split(rows)
    noise = trained.data.label_noise
    first, *_ = create_jobs(protocol.splits, 1, index, noise, trained.seed)
    return Split(first.train)


def _check_run(
    run: str, trained: Config, index: ImageIndex, split: Split, is_divided: bool
) -> None:
    """Prints notes on code of a user that has changed, and on classes that were trained on.

    Args:
        run: the run folder.
        trained: its config.
        index, split, is_divided: see `_check_classes`.
    """
    changed = describe_changed_code(trained.code, run)
    if changed:
        print_line(f"note: {changed}")
    _check_classes(run, index, split, is_divided)


def _check_classes(run: str, index: ImageIndex, split: Split, is_divided: bool) -> None:
    """Prints a note on classes that were trained on, unless the images are of a closed set.

    Args:
        run: the run folder.
        index: the images.
        split: those that are scored.
        is_divided: whether the images of each class are divided into training and test.

    Raises:
        UserError: images of a closed set are others than those of the run, and divide in another
            way, so that training images would be tested.
    """
    if not is_divided:
        seen = describe_seen(split.class_names, run)
        if seen:
            print_line(f"note: {seen}")
        return
    folder = RunFolder(run)
    if folder.has_other_images(index):
        raise UserError(
            f"data.root: {folder.describe_other_images(index)}: which of them were trained on is "
            f"not known; to score the new ones, list them in a CSV file with the columns "
            f"path,label,split and test in each row: data.root=<file>.csv"
        )
