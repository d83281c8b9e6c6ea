"""One run, from its config to `summary.json`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from packaging.version import Version

from dml.config.check import check
from dml.config.command_line import is_multirun
from dml.config.derived import find_derived
from dml.config.explain import compose_config
from dml.config.identity import flatten, identity
from dml.config.options import merge_words
from dml.config.own_code import record_own_code
from dml.config.presets import apply_params, split_params, split_trust
from dml.config.schema import LORA, Config
from dml.core.atomic_io import read_json, write_json
from dml.core.deadline import end_in_time
from dml.core.errors import ConfigError, UserError, translate_custom_errors
from dml.core.installation import shell_command
from dml.core.locks import Busy, HolderWait
from dml.core.names import named_folder
from dml.core.progress import open_display, show_task
from dml.core.run_log import log_start, run_logger, write_log
from dml.core.secrets import MASK
from dml.core.signals import StopRequest, raise_on_signals
from dml.core.tolerant_output import lost_output, tolerant_output
from dml.data.image_index import ImageIndex
from dml.data.protocol import Job, trained_classes
from dml.models.embedder import Embedder
from dml.models.freezing import describe_trained
from dml.models.lora import ALL, describe_adapters
from dml.runs.category_scores import write_categories
from dml.runs.compressed_rows import check_size
from dml.runs.compression_table import COMPRESS
from dml.runs.console import console, print_line, print_results
from dml.runs.context import JobModel, RunContext
from dml.runs.drawing_guard import DrawingGuard
from dml.runs.dry_run import dry_run
from dml.runs.figures.run_figures import draw_curves
from dml.runs.folder.code_changes import find_code_notes, refuse_changed_code
from dml.runs.folder.environment import record_environment
from dml.runs.folder.run_folder import RunFolder, load_options
from dml.runs.folder.stored_run import WEIGHTS
from dml.runs.memory_check import check_memory
from dml.runs.resource_errors import translate_resource_errors
from dml.runs.summary import describe_batches, describe_run, list_notes, summarize
from dml.runs.train_jobs import read_results, train_jobs, wait
from dml.runs.workers import Stop, start_workers
from dml.tracking import Tracker, track_run
from dml.tracking.patient import PatientTracker
from dml.tracking.tracker import GuardedTracker
from dml.training.device import device_name
from dml.training.micro_batches import uses_batch_statistics
from dml.training.process_group import distributed_session
from dml.training.process_state import restored_process_state
from dml.training.schedules import describe_warmup

OPTUNA = Version("4.2")  # the oldest version that search=bayes runs with


@restored_process_state()
def train(overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Trains and evaluates a model as `python train.py <overrides>` does; returns its summary.

    A finished run is not trained again: its summary is read from its folder.

    Args:
        overrides: words of the command line, such as `["loss=mfcwms", "data=glyphs"]`; one value
            for each option. `--config-dir` adds a folder of configs; `trust=true` lets the file
            of `params=` name any class or function.

    Returns:
        The content of `summary.json`, and the run folder as `folder`, for `dml.load`.

    Raises:
        ConfigError: a wrong option, one line per problem.
        UserError: another problem that the user can solve.
        RunStopped: the run was interrupted; its state is saved and the same call continues.
    """
    if isinstance(overrides, str):
        raise ConfigError([f"train: takes a list of words; type dml.train({overrides.split()})"])
    if is_multirun([*overrides]):
        raise ConfigError(
            [f"train: trains one model; call it in a loop, or use {shell_command('train')} instead"]
        )
    trust, words = split_trust(overrides)
    params, options = split_params(words)
    cfg = apply_params(compose_config("train", options), params, options, trust)
    for note in record_own_code(cfg):
        print_line(f"note: {note}")
    config = check(cfg)
    folder = RunFolder.of(config)
    summary = run(config, overrides, folder=folder)
    return {**summary, "folder": str(folder.path)}


def resume(path: str | Path, words: Sequence[str] = (), trust: bool = False) -> dict[str, Any]:
    """Continues the run in a folder with the config that is stored there.

    Args:
        path: of the run folder.
        words: keys and passwords, which are not stored, the folder of moved data, and other options
            that do not change the result, as `name=value`.
        trust: see `dml.load`.

    Raises:
        UserError: the folder is not a run folder, or a word changes the result; see also `run`.
    """
    folder = RunFolder(named_folder(path))
    stored = load_options(path, trust, trains=True, words=words)
    is_export = (folder.path / WEIGHTS).exists()
    if is_export:
        raise ConfigError(
            [f"resume: {path} is an exported network, not a run; resume=<run folder> continues one"]
        )
    _refuse_derived(folder)
    options = merge_words(stored, words)
    before = identity(stored)
    changed = [name for name, value in identity(options).items() if before.get(name) != value]
    if changed:
        raise ConfigError(
            f"resume: the run continues with its own config; leave out {name}" for name in changed
        )
    missing = [name for name, value in flatten(options).items() if MASK in str(value)]
    if missing:
        raise ConfigError(
            f"resume: {name} is not stored in {path}; add {name}=<value>" for name in missing
        )
    config = check(options)
    if note := refuse_changed_code(folder, config):
        print_line(f"note: {note}")
    return run(config, None, folder=folder)


def _refuse_derived(folder: RunFolder) -> None:
    """Raises ConfigError for a search of options from which others follow.

    The stored config has the values that followed at its start; a trial has others.
    """
    if folder.summary.exists():  # it is finished
        return
    derived = read_json(folder.derived) or {}
    names = sorted({name for others in derived.values() for name in others})
    if names:
        problem = f"{', '.join(names)} would not follow from what is searched"
        raise ConfigError([f"resume: {problem}; type the command in {folder.command} instead"])


@restored_process_state()
def run(
    config: Config,
    overrides: Sequence[str] | None = (),
    position: str = "",
    folder: RunFolder | None = None,
    dataset: ImageIndex | None = None,
    started: float | None = None,
) -> dict[str, Any]:
    """Trains, evaluates and reports; a finished run stays unchanged, an unfinished one continues.

    Args:
        config: of the run.
        overrides: words of the command line, for `command.txt`; None: the run continues from its
            folder alone.
        position: `run 2 of 6` of a multirun, shown while it runs.
        folder: of the run; None: that of the config.
        dataset: as its reader gave it, if it was read before.
        started: from when `max_minutes` counts (`time.monotonic`); None: from now.

    Returns:
        The summary, which is also in the run folder.

    Raises:
        UserError: a problem that the user can solve.
        RunStopped: the run was asked to stop; its state is saved.
    """
    folder = folder or RunFolder.of(config)
    with (
        tolerant_output(),
        raise_on_signals(),
        end_in_time(),
        distributed_session(config.device) as world,
    ):
        console.quiet = not world.is_main
        with open_display(console), show_task(position):
            context = RunContext(config, world, dataset=dataset)
            experiment = Experiment(folder, context, overrides)
            summary = None if config.overwrite else experiment.read_summary()
            if summary is not None:
                return experiment.leave_finished(summary)
            kept = "what was saved before is intact"
            with translate_custom_errors(kept), StopRequest(config.max_minutes, started) as stop:
                experiment.prepare()
                return experiment.run(stop)


@dataclass
class Experiment:
    """A run on one process; its methods are listed in the order of their calls.

    Attributes:
        folder: of the run.
        context: config, dataset and device; after a search with its best values.
        overrides: words of the command line; None: the run continues from its folder alone.
    """

    folder: RunFolder
    context: RunContext
    overrides: Sequence[str] | None

    def __post_init__(self) -> None:
        self.world, self.begun_with = self.context.world, self.context.config
        tracker = self.world.run_on_main(self.context.builder.tracker)
        self.tracker = Tracker() if tracker is None else GuardedTracker(tracker, print_line)
        if tracker is not None and tracker.server:
            self.tracker = PatientTracker(self.tracker, tracker.server, print_line)

    def read_summary(self) -> dict[str, Any] | None:
        """Returns the summary of the run; None if it is not finished."""
        return self.world.broadcast_from_main(self.folder.read_summary)

    def leave_finished(self, summary: dict[str, Any]) -> dict[str, Any]:
        """Prints the result of a finished run, and sends rows that its tracker lacks."""
        context, folder = self.context, self.folder
        if context.config.data.identified_by == "place":  # the user's images may have changed
            self.world.broadcast_from_main(lambda: self._check_dataset(()))
        print_line("already finished; overwrite=true starts it again")
        for option in ("name", "note"):
            text, stored = getattr(context.config, option), summary["config"].get(option)
            if text not in (None, stored):
                kept = f"{option}={stored}" if stored else f"no {option}"
                print_line(f"note: {option}={text} is not stored: a finished run keeps {kept}")
        if self.tracker.keeps_a_copy:  # it was unreachable before, or is chosen afterwards
            with folder.locked(), track_run(self.tracker, describe_run(context, folder)):
                self._draw_curves(summary)
                for result in summary["jobs"]:
                    self.tracker.job_done(result)
                self.tracker.conclude(summary, folder.pictures())
        else:
            with suppress(Busy):  # the process that trained the run draws them
                self.world.run_on_main(partial(self._draw_left_curves, summary))
        return self._show(summary)

    def _check_dataset(self, trained: Sequence[str]) -> None:
        """Stores or compares what identifies the dataset; with its categories if they are used."""
        context = self.context
        index = context.index
        if not context.config.uses_categories:
            index = replace(index, categories=None)
        self.folder.check_dataset(index, trained)

    def _draw_left_curves(self, summary: dict[str, Any]) -> None:
        """Draws curves that a stopped process has left."""
        if DrawingGuard(self.folder.figures_state).is_pending:
            with self.folder.locked():
                self._draw_curves(summary)

    def _draw_curves(self, summary: dict[str, Any]) -> None:
        """Draws the learning curves of a finished run if they are left to draw."""
        folder, guard = self.folder, DrawingGuard(self.folder.figures_state)
        keys = [(result["repeat"], result["fold"]) for result in summary["jobs"]]
        draw = partial(draw_curves, self.context.config, folder.history, keys, folder.figures)
        if guard.is_pending:
            guard.draw("learning curves", draw)

    def prepare(self) -> None:
        """Tries the first model before the folder is created: impossible runs leave no files."""
        context, config = self.context, self.context.config
        context.builder.check_arguments()
        self.world.run_main_first(context.builder.fetch_weights)  # before every image is read
        jobs = context.jobs if config.overwrite else self._unfinished_jobs()
        if not jobs:
            return
        context.check_categories(jobs)
        with translate_resource_errors():
            model = context.take_model(jobs[0])
            notes = self._try_model(model)
        for note in notes:
            print_line(f"note: {note}")
        for line in _describe_trained_parts(config, model.embedder):
            print_line(line)
        if config.search is None:
            context.prepared = model

    def _try_model(self, model: JobModel) -> list[str]:
        """Tries a model for two steps, and returns notes on its parts.

        Raises:
            ConfigError: a part of it does not work.
            UserError: it does not fit into the memory.
        """
        config = self.context.config
        classes, size = model.job.train.num_classes, model.embedder.embedding_size
        steps = config.protocol.epochs * model.schedule.steps_per_epoch
        length = config.protocol.epochs
        if config.optim.schedule_unit == "steps":
            length = steps
        build = model.build_optimizer
        check_memory(model.job, size, model.embedder, model.method)
        for form in config.evaluation.compress:
            check_size(form, size, len(model.job.train), COMPRESS)
        notes = list(dict.fromkeys(model.check_custom_parts()))  # each once
        notes += describe_warmup(config.optim.warmup_steps, steps)
        notes += dry_run(model.method, config, build, length, classes, size, self.context.device)
        return notes

    def _unfinished_jobs(self) -> list[Job]:
        results = read_results(self.context, self.folder)
        jobs = zip(self.context.jobs, results, strict=True)
        return [job for job, result in jobs if result is None]

    def run(self, stop: StopRequest) -> dict[str, Any]:
        """Searches and trains, together with any number of processes, and writes the summary.

        Args:
            stop: called after every step.

        Raises:
            Busy: another process trains the only model.
        """
        started, config = time.monotonic(), self.context.config
        if config.overwrite:
            self.world.run_on_main(self.folder.clear)
        workers = config.protocol.workers
        if config.search is None:
            workers = min(workers, len(self._unfinished_jobs()))
        outcome = None
        with ExitStack() as stack:
            take_part = partial(_take_part, self.folder)
            stack.enter_context(start_workers(take_part, config, self.folder.path, workers - 1))
            if config.search is not None:
                outcome = self._search(stop)
            summary = self._lock(stack, stop)
            if summary is not None:
                return self.leave_finished(summary)
            if outcome is None:
                self.begin()
            summary = self._train(stop, outcome, started)
        return self._show(summary)

    def _search(self, stop: StopRequest) -> dict[str, Any]:
        """Searches, takes the best values, and returns the search of the summary.

        Raises:
            UserError: the installed Optuna is too old; Hydra's own sweeper for it installs 2.10.
        """
        installed = version("optuna")
        if Version(installed) < OPTUNA:
            raise UserError(
                f"search: needs Optuna {OPTUNA}, found {installed}: pip install -U optuna"
            )
        from dml.runs.search.search_loop import search  # late: imports Optuna

        with write_log(self.folder.path, "search"):
            self.begin()
            if not self.folder.derived.exists():
                write_json(self.folder.derived, find_derived(self.context.config))
            with track_run(self.tracker, describe_run(self.context, self.folder)):
                outcome = search(self.context, stop, self.folder, self.tracker).report()
        self.context = self.context.with_values(outcome["params"])
        self.folder.write_trained(self.context.config)
        return outcome

    def _lock(self, stack: ExitStack, stop: StopRequest) -> dict[str, Any] | None:
        """Locks the run and writes `train.log` until `stack` closes.

        While another process has the lock, this one trains models for it. Returns its summary if it
        finishes the run, else None.
        """

        def enter() -> None:
            stack.enter_context(self.folder.locked())
            stack.enter_context(write_log(self.folder.path, "run"))

        has_waited = False
        keeper = HolderWait()
        while (summary := self.read_summary()) is None:
            try:
                self.world.run_on_main(enter)
                return None
            except Busy as busy:
                if self.world.size > 1 or len(self.context.jobs) == 1:
                    raise
                if not has_waited:
                    print_line(f"note: {busy.holder} keeps this run; training it together")
            has_waited = True
            self.context.prepared = None
            list(train_jobs(self.context, self.folder, stop))
            wait(stop, keeper, [self.folder.lock])
        return summary

    def begin(self) -> None:
        """Writes config and command; prints the composition of batches and notes on the config."""
        context, folder, config = self.context, self.folder, self.context.config
        code_notes = list(find_code_notes(folder, config))  # before the folder holds this config

        def write_config() -> str:
            trains = config.protocol.epochs > 0
            trained = trained_classes(config.protocol.splits, context.index) if trains else []
            self._check_dataset(trained)
            folder.write_config(config, self.overrides)
            return record_environment(folder)

        changed = self.world.broadcast_from_main(write_config)
        log_start()
        if changed:
            print_line(f"note: the run continues with {changed}")
        if lost_output():
            run_logger.info(lost_output())
        if config.speed == "fast" and context.device.type == "cuda":
            print_line(f"speed: fast (precision={config.precision}, channels_last=true)")
        print_line(describe_batches(context))
        for note in [*list_notes(context), *code_notes]:
            print_line(f"note: {note}")
        run_logger.info("device: %s", device_name(context.device))

    def _train(
        self, stop: StopRequest, outcome: dict[str, Any] | None, started: float
    ) -> dict[str, Any]:
        """Trains all models, writes the summary, and draws the curves.

        Args:
            stop: called after every step.
            outcome: of the search.
            started: `time.monotonic()` at the start of the run.
        """
        context, folder, world = self.context, self.folder, self.world
        request = world.share_stop_request(stop)
        info = world.broadcast_from_main(partial(describe_run, context, folder))
        with track_run(self.tracker, info):
            results = list(train_jobs(context, folder, request, self.tracker))
            with raise_on_signals(saved=True) if world.size == 1 else nullcontext():
                world.run_on_main(self._restore_config)
                summary = summarize(context, folder, results)
                summary["wall_seconds"] = round(time.monotonic() - started, 2)
                if outcome is not None:
                    summary["search"] = outcome
                world.broadcast_from_main(partial(self._store, summary))
                world.broadcast_from_main(partial(self._draw_curves, summary))
            self.tracker.conclude(summary, folder.pictures())
        return summary

    def _restore_config(self) -> None:
        """Writes the config again if it was deleted during the training: the summary holds it."""
        if not self.folder.config.exists():
            self.folder.write_config(self.begun_with)
            print_line(f"note: outputs: {self.folder.config} was deleted; it is written again")

    def _store(self, summary: dict[str, Any]) -> None:
        """Writes the summary, before the curves and the tracker, which cannot cost it then."""
        DrawingGuard(self.folder.figures_state).plan()
        if "categories" in summary:
            write_categories(self.folder.categories, summary)
        write_json(self.folder.summary, summary)

    def _show(self, summary: dict[str, Any]) -> dict[str, Any]:
        print_results(summary)
        for picture in self.folder.pictures():
            print_line(f"picture     {picture}")
        print_line(f"run folder  {self.folder.path}")
        return summary


def _take_part(folder: RunFolder, config: Config, stop: Stop) -> None:
    """Trains trials and models of a run that another process keeps, until none is left."""
    context = RunContext(config)
    if config.search is not None:
        from dml.runs.search.search_loop import search

        best = search(context, stop, folder, Tracker()).best_trial()
        if best is None:
            return
        context = context.with_values(best.params)
    list(train_jobs(context, folder, stop))


def _describe_trained_parts(config: Config, embedder: Embedder) -> Iterator[str]:
    """Yields lines on the parts of a network that are trained, and how it normalizes batches."""
    part = config.backbone.get("train", "all")
    if part != "all":
        yield f"trains {describe_trained(embedder)} (backbone.train={part})"
    if part == LORA:
        targets = config.backbone.get("lora", {}).get("targets", ALL)
        yield describe_adapters(embedder, targets)
    if _divides_batches(config) and uses_batch_statistics(embedder):
        yield (
            f"note: data.micro_batch={config.data.micro_batch}: BatchNorm normalizes each part "
            f"by itself; with embedder.freeze_batch_norm=true parts do not change the result"
        )


def _divides_batches(config: Config) -> bool:
    """Returns whether a batch has several parts."""
    return config.data.micro_batch is not None and config.data.micro_batch < config.data.batch_size
