"""One run, from its config to `summary.json`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from dml.config.check import check
from dml.config.compatibility import find_notes
from dml.config.identity import identity
from dml.config.schema import Config
from dml.core.errors import RunStopped
from dml.core.progress import open_display, show_task
from dml.core.run_logger import run_logger
from dml.core.signals import StopRequest, raise_on_signals
from dml.data.image_index import ImageIndex
from dml.runs.build import Builder
from dml.runs.console import console, print_line, print_results
from dml.runs.context import RunContext, list_jobs
from dml.runs.dry_run import dry_run
from dml.runs.figures.run_figures import draw_figures
from dml.runs.folder.run_folder import SEARCH_LOCK, Busy, RunFolder
from dml.runs.folder.run_log import log_start, write_log
from dml.runs.folder.summary import device_name, summarize, versions
from dml.runs.folder.tracker_info import complete_tracker, tracker_info
from dml.runs.jobs.job_data import describe_batches, schedule_batches
from dml.runs.jobs.job_list import validation_notes
from dml.runs.jobs.throughput import speed_note
from dml.runs.jobs.train_jobs import train_jobs
from dml.runs.load import load_cfg
from dml.runs.scores.ensemble import score_ensembles
from dml.tracking import Tracker, track_run
from dml.training.process_group import ProcessGroup, distributed_session


def run(
    cfg: DictConfig, config: Config, overrides: Sequence[str] = (), place: str = ""
) -> dict[str, Any]:
    """Trains, evaluates and reports; a finished run stays unchanged, an unfinished one continues.

    Args:
        cfg: as composed by Hydra.
        config: the same, checked (`dml.config.check.check`).
        overrides: words of the command line, for the name of a new folder and `command.txt`.
        place: `run 2 of 6` of a multirun, shown while it runs.

    Returns:
        The summary, which is also in the run folder.

    Raises:
        UserError: a problem that the user can solve.
        RunStopped: the run was asked to stop; its state is saved.
    """
    return _run(RunFolder.of(cfg, config, overrides), cfg, config, overrides, place)


def selection_score(summary: dict[str, Any]) -> float | None:
    """Returns the score that selected the epoch, 0–1: mean over folds, then over repeats.

    It is of validation classes, or of test classes where the protocol selects on those. None while
    another process trains the best configuration of a search.
    """
    metric = str(summary.get("selected_by")).partition(" ")[0]
    scores = summary.get("validation", {}).get(metric)
    return None if scores is None else float(scores["mean"])


def resume(path: str | Path) -> dict[str, Any]:
    """Continues the run in a folder with the config that is stored there.

    Raises:
        UserError: the folder is not a run folder; see also `run`.
    """
    cfg = load_cfg(path)
    return _run(RunFolder(path), cfg, check(cfg, Config))


def _run(
    folder: RunFolder,
    cfg: DictConfig,
    config: Config,
    overrides: Sequence[str] | None = None,
    place: str = "",
) -> dict[str, Any]:
    with distributed_session(config.device) as world:
        console.quiet = not world.is_main
        with open_display(console), show_task(place):
            return Experiment(folder, cfg, config, world, overrides).run()


class Experiment:
    """A run on one process; its methods stand in the order in which they are called.

    Args:
        folder: of the run.
        cfg: as composed by Hydra.
        config: the same, checked.
        world: the processes of the run.
        overrides: words of the command line; None: the run continues from its folder alone.
    """

    def __init__(
        self,
        folder: RunFolder,
        cfg: DictConfig,
        config: Config,
        world: ProcessGroup,
        overrides: Sequence[str] | None = None,
    ) -> None:
        self.folder, self.cfg, self.config, self.world = folder, cfg, config, world
        self.overrides = overrides
        self.builder = Builder(config)
        tracker: Tracker | None = world.run_on_main(self.builder.tracker)
        self.tracker = Tracker() if tracker is None else tracker

    def run(self) -> dict[str, Any]:
        """Returns the summary; see the function `run`."""
        read_summary = self.folder.read_summary
        summary = None if self.config.overwrite else self.world.broadcast_from_main(read_summary)
        if summary is not None:
            return self._leave_finished(summary)
        # Before there is a folder: absent data or an impossible loss leave no trace.
        dry_run(self.builder, lambda: self._index, self.world)
        index = self._index
        # Before weights are downloaded: too few classes or images.
        schedule_batches(self.config, list_jobs(self.config, index)[0])
        with StopRequest(self.config.max_minutes) as stop:
            if self.config.search is not None:
                return self._search(index, stop)
            return self._run_locked(index, stop)

    @cached_property
    def _index(self) -> ImageIndex:
        with show_task(f"reading {self.config.data.name}"):
            return self.builder.index()

    def _leave_finished(self, summary: dict[str, Any]) -> dict[str, Any]:
        """Shows a finished run, and completes its copy at the tracker."""
        if self.config.data.identified_by == "place":  # the user's images may have changed
            self.world.broadcast_from_main(lambda: self._check_dataset(self.builder.index()))
        print_line("finished before; overwrite=true runs it anew")
        labels = {"name": self.config.name, "note": self.config.note}
        new = {key: label for key, label in labels.items() if label not in (None, summary.get(key))}
        if new:
            summary |= new
            self.world.broadcast_from_main(lambda: self.folder.write_summary(summary))
        if self.tracker.keeps_a_copy:
            complete_tracker(self.tracker, summary, self.folder, self.cfg, self.config)
        return self._show(summary)

    def _run_locked(self, index: ImageIndex, stop: StopRequest) -> dict[str, Any]:
        """Trains while no other process does; another one may have finished the run before."""
        world, folder = self.world, self.folder
        with ExitStack() as locks:
            world.run_on_main(lambda: locks.enter_context(folder.locked()))
            if self.config.overwrite:
                world.broadcast_from_main(folder.clear)
            if not world.broadcast_from_main(folder.summary.exists):
                with self._logged("run"):
                    world.broadcast_from_main(lambda: self._write_config(index))
                    context = self._open(index)
                    summary = self._train(self.cfg, context, world.share_stop_request(stop))
                    return self._show(summary)
        return self.run()

    def _search(self, index: ImageIndex, stop: StopRequest) -> dict[str, Any]:
        """Searches beside any number of processes; one of them trains the best configuration."""
        from dml.runs.search.search_loop import override, search  # late: imports Optuna

        folder = self.folder
        if self.config.overwrite:
            with folder.locked(), folder.locked(SEARCH_LOCK):
                folder.clear()
        with folder.locked(SEARCH_LOCK, shared=True), self._logged("search"):
            self._write_config(index)
            context = self._open(index)
            outcome = search(self.cfg, context, folder, stop)
        try:
            with folder.locked(), self._logged("run"):
                summary = folder.read_summary()
                if summary is None:
                    best = override(self.cfg, outcome.params)
                    builder = Builder(check(best, Config))
                    context = RunContext.open(builder, identity(best), index)
                    summary = self._train(best, context, stop, search=outcome.summary)
        except Busy as busy:
            print_line(f"the search is finished; its best is being trained ({busy})")
            return {"search": outcome.summary}
        return self._show(summary)

    def _logged(self, work: str) -> AbstractContextManager[None]:
        """Returns the context in which the first process writes `train.log`."""
        return write_log(self.folder.path, work) if self.world.is_main else nullcontext()

    def _open(self, index: ImageIndex) -> RunContext:
        """Opens device and images, and prints what batches hold and the notes on the config."""
        log_start(versions())
        print_line(describe_batches(self.config))
        for note in find_notes(self.config):
            print_line(f"note: {note}")
        context = RunContext.open(self.builder, identity(self.cfg), index, self.world)
        if options := speed_note(self.config, context.device):
            print_line(f"note: {options}")
        run_logger.info("device: %s", device_name(context.device))
        return context

    def _write_config(self, index: ImageIndex) -> None:
        self._check_dataset(index)
        self.folder.write_config(self.cfg)
        if self.overrides is not None:
            self.folder.write_command(self.overrides)

    def _check_dataset(self, index: ImageIndex) -> None:
        self.folder.check_dataset(index.name, index.fingerprint(), len(index.labels))

    def _train(
        self,
        cfg: DictConfig,
        context: RunContext,
        stop: Callable[[], RunStopped | None],
        **more: Any,
    ) -> dict[str, Any]:
        """Trains all models, draws the figures, and writes the summary (with `more`) last."""
        started = time.monotonic()
        world, folder, tracker = self.world, self.folder, self.tracker
        jobs = context.jobs()
        for note in validation_notes(jobs):
            print_line(f"note: {note}")
        keys = [job.key for job in jobs]
        info = world.run_on_main(lambda: tracker_info(cfg, context.config, folder, keys))
        with nullcontext() if info is None else track_run(tracker, info):
            results = train_jobs(context, jobs, folder, tracker, stop)
            with raise_on_signals(saved=True) if world.size == 1 else nullcontext():
                ensembles = world.broadcast_from_main(
                    lambda: score_ensembles(context, jobs, folder)
                )
                with show_task("drawing the figures"):
                    draw_figures(context, jobs, folder)
            seconds = time.monotonic() - started
            summary = summarize(context, jobs, results, ensembles, seconds)
            summary |= {"processes": world.size, **more}
            tracker.conclude(summary, folder.pictures())
            world.broadcast_from_main(lambda: folder.write_summary(summary))
        return summary

    def _show(self, summary: dict[str, Any]) -> dict[str, Any]:
        print_results(summary)
        for picture in self.folder.pictures():
            print_line(f"picture     {picture}")
        print_line(f"run folder  {self.folder.path}")
        return summary
