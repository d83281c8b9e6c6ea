"""One run, from its config to `summary.json`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from dml.config.check import check
from dml.config.compatibility import find_notes
from dml.config.identity import identity
from dml.config.schema import Config
from dml.core.errors import RunStopped
from dml.data.base import ImageIndex
from dml.runs import build, dry_run, protocols
from dml.runs.console import console, results_table
from dml.runs.context import RunContext
from dml.runs.figures.drawing import learning_curve
from dml.runs.figures.positivity import draw_positivity_of_model
from dml.runs.figures.stages import stage_curve
from dml.runs.folder.run_folder import Busy, RunFolder
from dml.runs.folder.run_info import complete_copy, run_info
from dml.runs.folder.summary import summarize
from dml.runs.jobs.job import JobRun
from dml.runs.jobs.job_result import EMBEDDINGS
from dml.runs.jobs.train_jobs import train_all
from dml.runs.load import load_cfg
from dml.runs.protocols import Job
from dml.runs.scores.ensemble import concatenated
from dml.tracking import History, NullTracker, Tracker, tracked
from dml.training.distributed_session import distributed_session
from dml.training.interrupts import StopRequest
from dml.training.process_group import World

SEARCH_LOCK = "search.lock"  # shared by the workers of a search
Stop = Callable[[], RunStopped | None]


def run(cfg: DictConfig, config: Config) -> dict[str, Any]:
    """Trains, evaluates and reports; a finished run is left alone, an unfinished one continued.

    Args:
        cfg: as Hydra composed it.
        config: the same, checked (`dml.config.check.check`).

    Returns:
        The summary, which is also in the run folder.

    Raises:
        UserError: what the user can mend.
        RunStopped: the run was asked to stop; its state is saved.
    """
    return _run_in(RunFolder.of(cfg, config), cfg, config)


def resume(path: str | Path) -> dict[str, Any]:
    """Continues the run in a folder from the config that is stored there.

    Raises:
        UserError: the folder holds no run; see also `run`.
    """
    cfg = load_cfg(path)
    return _run_in(RunFolder(path), cfg, check(cfg, Config))


def _run_in(folder: RunFolder, cfg: DictConfig, config: Config) -> dict[str, Any]:
    with distributed_session(config.device) as world:
        console.quiet = not world.is_main
        return _run_by(world, folder, cfg, config)


def _run_by(world: World, folder: RunFolder, cfg: DictConfig, config: Config) -> dict[str, Any]:
    made: Tracker | None = world.main_only(lambda: build.instantiate(config.tracking, "tracking"))
    tracker = NullTracker() if made is None else made
    summary = None if config.overwrite else world.on_main(folder.read_summary)
    if summary is not None:
        if config.data.identified_by == "place":  # one's own images may have changed
            world.on_main(lambda: _check_dataset(folder, build.build_index(config)))
        console.print("finished before; overwrite=true runs it anew")
        if tracker.keeps_a_copy:
            complete_copy(tracker, summary, folder, cfg, config)
    else:
        # Before the folder: absent data, or a loss that refuses its options, leaves no trace.
        dry_run.check(config)
        index = build.build_index(config)
        for note in find_notes(config):
            console.print(f"note: {note}")
        with StopRequest(config.max_minutes) as stop:
            if config.search is not None:
                return _search_and_run(folder, cfg, config, index, tracker, stop)
            with ExitStack() as held:
                world.main_only(lambda: held.enter_context(folder.locked()))
                if config.overwrite:
                    world.on_main(folder.clear)
                elif world.on_main(folder.summary.exists):  # by another run in the meantime
                    return _run_by(world, folder, cfg, config)
                world.on_main(lambda: _check_dataset(folder, index))
                world.on_main(lambda: folder.write_config(cfg))
                context = RunContext.of(config, identity(cfg), index, world)
                summary = _train(cfg, context, folder, tracker, world.agreed(stop))
    _show(summary, folder)
    return summary


def _search_and_run(
    folder: RunFolder,
    cfg: DictConfig,
    config: Config,
    index: ImageIndex,
    tracker: Tracker,
    stop: StopRequest,
) -> dict[str, Any]:
    """The search, by any number of processes, then the repeats of its best, by one of them."""
    from dml.runs.search.run import search, with_params  # late: Optuna is only needed here

    if config.overwrite:
        with folder.locked(), folder.locked(SEARCH_LOCK):
            folder.clear()
    with folder.locked(SEARCH_LOCK, shared=True):
        _check_dataset(folder, index)
        folder.write_config(cfg)
        found = search(cfg, RunContext.of(config, identity(cfg), index), folder, stop)
    try:
        with folder.locked():
            summary = folder.read_summary()
            if summary is None:
                best_cfg = with_params(cfg, found.params)
                best = check(best_cfg, Config)
                context = RunContext.of(best, identity(best_cfg), index)
                summary = _train(best_cfg, context, folder, tracker, stop, search=found.summary)
    except Busy as busy:
        console.print(f"the search is finished; its best is being trained ({busy})")
        return {"search": found.summary}
    _show(summary, folder)
    return summary


def _check_dataset(folder: RunFolder, index: ImageIndex) -> None:
    folder.check_dataset(index.name, index.fingerprint(), len(index.labels))


def _show(summary: dict[str, Any], folder: RunFolder) -> None:
    console.print(results_table(summary))
    for picture in folder.pictures():
        console.print(f"picture     {picture}")
    console.print(f"run folder  {folder.path}")


def _train(
    cfg: DictConfig,
    context: RunContext,
    folder: RunFolder,
    tracker: Tracker,
    stop: Stop,
    **more: Any,
) -> dict[str, Any]:
    """All models of the run, the pictures, and last of all the summary (with `more` in it)."""
    started = time.monotonic()
    config, p, world = context.config, context.config.protocol, context.world
    jobs = protocols.jobs(p.splits, p.repeats, context.index, config.data.label_noise, config.seed)
    for note in protocols.notes(jobs):
        console.print(f"note: {note}")
    which = [(job.repeat, job.fold) for job in jobs]
    info = world.main_only(lambda: run_info(cfg, config, folder, which))
    with nullcontext() if info is None else tracked(tracker, info):
        results = train_all(context, jobs, folder, tracker, stop)
        together = world.on_main(lambda: _concatenated(context, jobs, folder))
        _draw(context, jobs, folder)
        seconds = time.monotonic() - started
        tested = jobs[0].test.query
        summary = summarize(config, results, together, tested, context.device, seconds)
        summary |= {"processes": world.size, **more}
        tracker.conclude(summary, folder.pictures())
        world.on_main(lambda: folder.write_summary(summary))
    return summary


def _concatenated(
    context: RunContext, jobs: Sequence[Job], folder: RunFolder
) -> list[dict[str, Any]] | None:
    """Per repeat the scores of its models joined into one; None where it has only one."""
    if protocols.FOLDS[context.config.protocol.splits] == 1:
        return None
    found = []
    for folds in protocols.by_repeat(jobs):
        files = [folder.job(job.name) / EMBEDDINGS for job in folds]
        normalize = context.config.embedder["normalize"]
        embedded = concatenated(files, normalize, context.device)
        metrics = embedded.score(folds[0].test.query.index.recall_at)
        size = embedded.query.shape[1]
        found.append({"repeat": folds[0].repeat, "metrics": metrics, "embedding_size": size})
    return found


def _draw(context: RunContext, jobs: Sequence[Job], folder: RunFolder) -> None:
    """The learning curves, and what the first model retrieves."""
    config = context.config
    name = f"{config.loss['name']} on {config.data.name}"
    context.world.on_main(lambda: _draw_curves(config, jobs, folder, name))
    first = JobRun(context, jobs[0], folder.job(jobs[0].name))
    first.load_best()
    first.draw_neighbors(name, folder.figures / "neighbors.png")
    if "positivity" in config.evaluation.measures:
        picture = folder.figures / "positivity.png"
        context.world.on_main(lambda: draw_positivity_of_model(first, picture))


def _draw_curves(config: Config, jobs: Sequence[Job], folder: RunFolder, name: str) -> None:
    history = History(folder.history)
    learning_curve(
        [history.of(job.repeat, job.fold) for job in jobs],
        config.protocol.select_metric,
        f"{name}, protocol {config.protocol.name}",
        folder.figures / "learning_curve.png",
    )
    rows = history.of(jobs[0].repeat, jobs[0].fold)
    if any("stage" in row for row in rows):
        stage_curve(rows, config.protocol.select_metric, name, folder.figures / "stages.png")
