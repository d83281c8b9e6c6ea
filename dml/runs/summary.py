"""What is said of a run: its summary, its description for trackers, and notes before training."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any

from torch.nn import functional as F

from dml.config.compatibility import find_notes
from dml.config.identity import protocol_id, result_id
from dml.config.own_code import package_versions
from dml.core.counts import count_of
from dml.core.installation import git_revision, versions
from dml.core.launcher import read_sweep_size
from dml.core.metric_names import recall_levels
from dml.core.option_values import describe_classes, has_seen_classes, selection_section
from dml.core.processor import available_cores
from dml.core.secrets import mask_options, mask_word, mask_words
from dml.core.statistics import combine_scores
from dml.data.categories import image_categories
from dml.data.closed_set import describe_parts
from dml.data.image_index import describe_images
from dml.data.protocol import FOLDS, validates_one_class
from dml.data.samplers import count_without_pairs
from dml.models.embedder import NORMALIZERS
from dml.retrieval.embeddings import concatenate_models
from dml.runs.category_scores import combine_categories, means_of_categories
from dml.runs.console import print_line
from dml.runs.context import RunContext
from dml.runs.custom_metrics import score_all
from dml.runs.folder.environment import earlier_environments
from dml.runs.folder.run_folder import EMBEDDINGS, RunFolder
from dml.runs.folder.stored_run import name_images, read_config
from dml.runs.job import Result
from dml.tracking import RunInfo
from dml.training.device import device_name, peak_memory_mb

LOOKED_AT = 1000  # batches, for pairs; all of a long epoch would take seconds


def summarize(context: RunContext, folder: RunFolder, results: Sequence[Result]) -> dict[str, Any]:
    """Scores joined models, and returns the content of `summary.json`.

    Args:
        context: of the run.
        folder: of the run.
        results: of all models.
    """
    config, world, protocol = context.config, context.world, context.config.protocol
    tested = context.jobs[0].test.query
    concatenated = world.broadcast_from_main(partial(_score_ensembles, context, folder))
    section = selection_section(protocol.selected_on)
    kind = describe_classes(protocol.splits)
    rates = [result["images_per_second"] for result in results]
    categories = {}
    if "categories" in results[0]:
        categories["categories"] = combine_categories(results)
    return {
        "result_id": result_id(config),
        "data": config.data.variant,
        "stand_in": tested.index.stand_in,
        "images": world.broadcast_from_main(partial(name_images, folder.dataset)),
        "skipped_images": tested.index.skipped,
        "protocol": protocol_id(config),
        "evaluation": "single" if concatenated is None else "separated",
        "selected_by": f"{protocol.select_metric} on {protocol.selected_on}",
        "loss": config.loss["name"],
        "method": config.method["name"],
        "classes_tested": f"{len(tested)} images of {tested.num_classes} {kind}",
        "embedding_size": results[-1]["embedding_size"],
        "metrics": combine_scores(results),
        **categories,
        "concatenated": concatenated,
        section: combine_scores(results, section),
        "untrained": combine_scores(results, "untrained"),
        "best_epoch": [result["best_epoch"] for result in results],
        "jobs": results,
        "device": device_name(context.device),
        "processes": world.size,
        "precision": config.precision,
        "images_per_second": round(fmean(rates), 1),
        "peak_memory_mb": round(peak_memory_mb(context.device), 1),
        "versions": versions() | package_versions(config.model_dump(by_alias=True)),
        "git_revision": git_revision(),
        "earlier_environments": world.broadcast_from_main(partial(earlier_environments, folder)),
        "config": world.broadcast_from_main(partial(read_config, folder.config)),
    }


def _score_ensembles(context: RunContext, folder: RunFolder) -> dict[str, Any] | None:
    """Returns the scores of the concatenated models of each repeat; None for one model a repeat."""
    config = context.config
    recall_at = recall_levels(context.index.recall_at, config.protocol.select_metric)
    if FOLDS[config.protocol.splits] == 1:
        return None
    name = config.embedder["normalize"]
    normalize = F.normalize if name == "none" else NORMALIZERS[name]
    repeats: list[dict[str, Any]] = []
    for repeat, folds in itertools.groupby(context.jobs, lambda job: job.repeat):
        files = [folder.job(job.name) / EMBEDDINGS for job in folds]
        embeddings = concatenate_models(files, normalize, context.device)
        metrics = embeddings.score(recall_at, config.evaluation.backend)
        metrics |= score_all(context.builder.metrics, embeddings, is_final=True)
        size = embeddings.query.shape[1]
        scores = {"repeat": repeat, "metrics": metrics, "embedding_size": size}
        if config.evaluation.by is not None:
            names = image_categories(context.jobs[0].test.query, "evaluation.by")
            scores["categories"] = embeddings.score_categories(names, config.evaluation.backend)
            scores["metrics"] |= means_of_categories(scores["categories"])
        repeats.append(scores)
    joined = {
        "embedding_size": repeats[-1]["embedding_size"],
        "metrics": combine_scores(repeats),
        "repeats": repeats,
    }
    if config.evaluation.by is not None:
        joined["categories"] = combine_categories(repeats)
    return joined


def describe_run(context: RunContext, folder: RunFolder) -> RunInfo:
    """Returns the description of a run for its tracker."""
    config, protocol = context.config, context.config.protocol
    options = config.plain
    del options["tracking"]
    options["run"] = {
        "result_id": result_id(config),
        "protocol_id": protocol_id(config),
        "selected_on": protocol.selected_on,
        "stand_in": config.data.stands_in,
        "seen_classes": has_seen_classes(protocol.splits),
        "digest": config.digest,
        "folder": str(folder.path),
    }
    tags = [config.data.variant, protocol.name]
    if config.data.stands_in:
        tags.append("stand-in")
    if has_seen_classes(protocol.splits):
        tags.append("seen-classes")
    jobs = itertools.product(range(protocol.repeats), range(FOLDS[protocol.splits]))
    return RunInfo(
        folder=folder.path,
        run_id=folder.run_id(),
        name=mask_word(config.name or f"{folder.path.parent.name} seed{config.seed}"),
        group=mask_word(config.experiment.id),
        config=mask_options(options),
        jobs=list(jobs),
        tags=mask_words(tags),
        notify=print_line,
    )


def describe_batches(context: RunContext) -> str:
    """Returns a line on the images of a training batch."""
    data = context.config.data
    batch, sampler = f"batches of {data.batch_size} images", data.sampler
    if isinstance(sampler, dict):
        return f"{batch}, drawn by {sampler['_target_']} (data.sampler)"
    drawn = "drawn at random"
    if sampler != "random" and data.images_per_class:
        groups = data.batch_size // data.images_per_class
        drawn = f"{groups} groups of {data.images_per_class} of a class"
    if sampler == "category":
        drawn += f", of {data.categories_per_batch} categories"
    return f"{batch}, {drawn} (data.sampler={sampler})"


def _count_without_pairs(context: RunContext) -> str | None:
    """Returns a note on batches of which a loss of pairs learns nothing or little; or None."""
    model = context.prepared
    if model is None or context.config.loss["batch_kind"] != "pair":
        return None
    steps = min(model.schedule.steps_per_epoch, LOOKED_AT)
    count = count_without_pairs(model.schedule, model.job.train.labels, steps)
    if not count or context.config.protocol.epochs == 0:
        return None
    return (
        f"data.batch_size: {count} of the first {steps} batches have images of one class only, or "
        f"no two of a class; a larger batch has pairs of both kinds"
    )


def _describe_idle_cores(context: RunContext) -> str | None:
    """Returns a note on the cores that a head on stored features does not use; or None.

    In a sweep, `dml plan` says so for all of its runs.
    """
    trains_in_a_thread = context.index.features is not None and context.device.type == "cpu"
    is_several = context.config.protocol.workers > 1 or read_sweep_size() > 1
    is_chosen = os.environ.get("OMP_NUM_THREADS") == "1"  # as by who starts several runs
    cores = available_cores()
    if not trains_in_a_thread or is_several:
        return None
    if is_chosen or cores == 1:
        return None
    remedy = "start other runs meanwhile"
    if len(context.jobs) > 1 or context.config.search is not None:
        remedy = f"protocol.workers={cores} trains several of its models at the same time"
    return (
        f"stored features train in one thread, so that results do not depend on the number of "
        f"cores ({cores} here): {remedy}"
    )


def list_notes(context: RunContext) -> list[str]:
    """Returns notes on the config, the images, and the images that select the epoch."""
    jobs = context.jobs
    notes = [*find_notes(context.config), *describe_images(context.index)]
    of_one_class = sum(map(validates_one_class, jobs))
    if of_one_class:
        notes.append(
            f"{context.index.name} leaves {of_one_class} of {len(jobs)} models one class to "
            f"validate on, where every score is 100: their epoch is the first that was evaluated"
        )
    trained, validated = jobs[0].train.classes, jobs[0].validation.query.classes
    if has_seen_classes(context.config.protocol.splits):
        notes += describe_parts(context.index)
    elif not set(trained).isdisjoint(validated):
        notes.append("few classes: the epoch is selected on a third of their images")
    images, batch = len(jobs[0].train), context.config.data.batch_size
    if batch > images and context.config.protocol.epochs > 0:
        notes.append(
            f"data.batch_size={batch} is above the {count_of(images, 'training image')}: a batch "
            f"has images several times, and its pairs take memory"
        )
    for note in (_count_without_pairs(context), _describe_idle_cores(context)):
        if note is not None:
            notes.append(note)
    return notes
