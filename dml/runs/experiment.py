"""One run, from its config to `summary.json`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dml.config.check import check
from dml.config.command_line import is_multirun
from dml.config.compatibility import find_notes
from dml.config.explain import explain
from dml.config.identity import ROOTS, flatten, identity, protocol_id, result_id
from dml.config.presets import apply_params
from dml.config.schema import Config
from dml.core.errors import ConfigError, RunStopped, UserError, first_line
from dml.core.installation import CONFIGS, shell_command
from dml.core.locks import Busy
from dml.core.progress import open_display, show_task
from dml.core.run_logger import run_logger
from dml.core.secrets import MASK, mask_options
from dml.core.signals import StopRequest, raise_on_signals
from dml.data.image_index import ImageIndex
from dml.runs.build import Builder
from dml.runs.console import console, print_line, print_results
from dml.runs.dry_run import dry_run
from dml.runs.embeddings import concatenate_models
from dml.runs.figures.run_figures import draw_curves
from dml.runs.folder.run_folder import RunFolder, load_cfg
from dml.runs.folder.run_log import log_start, write_log
from dml.runs.folder.summary import device_name, summarize, versions
from dml.runs.job import EMBEDDINGS, JobRun, RunContext, read_result, translate_resource_errors
from dml.runs.protocol import FOLDS, Job, validates_one_class
from dml.runs.train_jobs import Models, assist, train_jobs, wait
from dml.runs.training_status import RunPosition
from dml.tracking import RunInfo, Tracker, track_run
from dml.training.device import resolve_device
from dml.training.micro_batches import uses_batch_statistics
from dml.training.process_group import ProcessGroup, distributed_session

OPTUNA = (4, 2)  # the oldest version that search=bayes runs with


def train(overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Trains and evaluates a model as `python train.py <overrides>` does; returns its summary.

    A finished run is not trained again: its summary is read from its folder.

    Args:
        overrides: words of the command line, such as `["loss=mfcwms", "data=glyphs"]`; one value
            for each option.

    Returns:
        The content of `summary.json`, and the run folder as `folder`, for `dml.load`.

    Raises:
        ConfigError: a wrong option, one line per problem.
        UserError: another problem that the user can solve.
        RunStopped: the run was interrupted; its state is saved and the same call continues.
    """
    from hydra import compose, initialize_config_dir

    if isinstance(overrides, str):
        raise ConfigError([f"train: takes a list of words; type dml.train({overrides.split()})"])
    if is_multirun([*overrides]):
        raise ConfigError(
            [f"train: trains one model; call it in a loop, or use {shell_command('train')} instead"]
        )
    params = [word.partition("=")[2] for word in overrides if word.startswith("params=")]
    options = [word for word in overrides if not word.startswith("params=")]
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            cfg = compose("train", overrides=options)
    except Exception as error:  # Hydra refuses overrides with errors of many classes
        raise ConfigError(explain(options, "train") or [first_line(error)]) from error
    cfg = apply_params(cfg, params[-1] if params else None, options)
    config = check(cfg, Config)
    folder = RunFolder.of(cfg, config)
    return {**run(cfg, config, overrides, folder=folder), "folder": str(folder.path)}


def resume(path: str | Path, words: Sequence[str] = ()) -> dict[str, Any]:
    """Continues the run in a folder with the config that is stored there.

    Args:
        path: of the run folder.
        words: keys and passwords, which are not stored, and the folder of moved data, as
            `name=value`.

    Raises:
        UserError: the folder is not a run folder, a secret is missing, or a word sets another
            option; see also `run`.
    """
    cfg = load_cfg(path)
    options = flatten(OmegaConf.to_container(cfg))
    secrets = {name for name, value in options.items() if MASK in str(value)}
    given = dict(word.partition("=")[::2] for word in words)
    if others := given.keys() - secrets - set(ROOTS):
        raise ConfigError(
            f"resume: the run continues with its own config; leave out {name}" for name in others
        )
    if missing := secrets - given.keys():
        raise ConfigError(
            f"resume: {name} is not stored in {path}; add {name}=<value>" for name in missing
        )
    for name, value in given.items():
        OmegaConf.update(cfg, name, value)
    try:
        config = check(cfg, Config)
    except ConfigError as error:
        if "missing" not in str(error):
            raise
        reason = f"{RunFolder(path).config} cannot be read: options are missing"
        raise UserError(f"resume: {reason}; restore it") from error
    return run(cfg, config, None, folder=RunFolder(path))


def selection_score(summary: dict[str, Any]) -> float | None:
    """Returns the score that selected the epoch, 0–1: mean over folds, then over repeats.

    It is of validation classes, or of test classes where the protocol selects on those. None while
    another process trains the best configuration of a search.
    """
    metric = str(summary.get("selected_by")).partition(" ")[0]
    scores = summary.get("validation", {}).get(metric)
    return None if scores is None else float(scores["mean"])


def run(
    cfg: DictConfig,
    config: Config,
    overrides: Sequence[str] | None = (),
    place: str = "",
    folder: RunFolder | None = None,
) -> dict[str, Any]:
    """Trains, evaluates and reports; a finished run stays unchanged, an unfinished one continues.

    Args:
        cfg: as composed by Hydra.
        config: the same, checked (`dml.config.check.check`).
        overrides: words of the command line, for `command.txt`; None: the run continues from its
            folder alone.
        place: `run 2 of 6` of a multirun, shown while it runs.
        folder: of the run; None: that of the config.

    Returns:
        The summary, which is also in the run folder.

    Raises:
        UserError: a problem that the user can solve.
        RunStopped: the run was asked to stop; its state is saved.
    """
    folder = folder or RunFolder.of(cfg, config)
    with distributed_session(config.device) as world:
        console.quiet = not world.is_main
        with open_display(console), show_task(place):
            experiment = Experiment(folder, cfg, config, world, overrides)
            read = partial(world.broadcast_from_main, folder.read_summary)
            if not config.overwrite and (summary := read()) is not None:
                return experiment.leave_finished(summary)
            with StopRequest(config.max_minutes) as stop:
                context, built = experiment.prepare()
                if config.search is not None:
                    return experiment.search(context, stop)
                return experiment.train_or_assist(context, stop, built)


@dataclass
class Experiment:
    """A run on one process; its methods stand in the order in which they are called.

    Attributes:
        folder: of the run.
        cfg: as composed by Hydra; after a search with its best values.
        config: the same, checked.
        world: the processes of the run.
        overrides: words of the command line; None: the run continues from its folder alone.
    """

    folder: RunFolder
    cfg: DictConfig
    config: Config
    world: ProcessGroup
    overrides: Sequence[str] | None

    def __post_init__(self) -> None:
        self._set_config(self.config)
        self.tracker: Tracker = self.world.run_on_main(self.builder.tracker) or Tracker()

    def _set_config(self, config: Config) -> None:
        device = resolve_device(config.device, self.world)
        self.config = config.on_device(device.type == "cuda")
        self.builder = Builder(self.config)

    def leave_finished(self, summary: dict[str, Any]) -> dict[str, Any]:
        """Shows a finished run, and completes its copy at the tracker."""
        if self.config.data.identified_by == "place":  # the user's images may have changed
            self.world.broadcast_from_main(lambda: self._check_dataset(self.builder.index()))
        print_line("finished before; overwrite=true runs it anew")
        labels = {"name": self.config.name, "note": self.config.note}
        new = {key: label for key, label in labels.items() if label not in (None, summary.get(key))}
        if new:
            summary |= new
            self.world.broadcast_from_main(lambda: self.folder.write_summary(summary))
        if self.tracker.keeps_a_copy:  # it was unreachable before, or is chosen afterwards
            jobs = [(result["repeat"], result["fold"]) for result in summary["jobs"]]
            info = self._tracker_info(jobs)
            with self.folder.locked(), track_run(self.tracker, info):
                for result in summary["jobs"]:
                    self.tracker.job_done(result)
                self.tracker.conclude(summary, self.folder.pictures())
        return self._show(summary)

    def prepare(self) -> tuple[RunContext, Models]:
        """Tries the first model before there is a folder: what is impossible leaves no trace.

        Returns:
            What the models share, and the first one if this process trains it.
        """
        self.builder.check_arguments()
        with show_task(f"reading {self.config.data.name}"):
            index = self.builder.index()
        protocol = self.config.protocol
        position = RunPosition(protocol.repeats, FOLDS[protocol.splits])
        context = RunContext(self.builder, identity(self.cfg), index, self.world, position)
        for job in context.jobs():
            folder = self.folder.job(job.name)
            read = partial(read_result, folder)
            if self.config.overwrite or self.world.broadcast_from_main(read) is None:
                break
        else:
            return context, {}
        with translate_resource_errors():
            model = JobRun(context, job, folder)
            size = model.embedder.embedding_size
            dry_run(self.builder, model.method, job.train.num_classes, size, context.device)
        if (part := self.config.data.micro_batch) and uses_batch_statistics(model.embedder):
            print_line(
                f"note: data.micro_batch={part}: BatchNorm normalizes each part by itself; "
                f"with embedder.freeze_batch_norm=true parts do not change the result"
            )
        here = self.config.search is None and self.config.protocol.workers == 1
        return context, {job.key: model} if here else {}

    def search(self, context: RunContext, stop: StopRequest) -> dict[str, Any]:
        """Searches beside any number of processes; one of them trains the best configuration.

        Raises:
            UserError: the installed Optuna is too old.
        """
        if tuple(map(int, (found := version("optuna")).split(".")[:2])) < OPTUNA:
            need = ".".join(map(str, OPTUNA))
            raise UserError(f"search: needs Optuna {need}, found {found}: pip install -U optuna")
        from dml.runs.search.search_loop import override, search  # late: imports Optuna

        folder = self.folder
        if self.config.overwrite:
            with folder.locked():
                folder.clear()
        with write_log(folder.path, "search"):
            self.begin(context)
            jobs = [job.key for job in context.jobs()]
            with track_run(self.tracker, self._tracker_info(jobs)):
                outcome = search(self.cfg, context, stop, folder, self.tracker)
        self.cfg = override(self.cfg, outcome["params"])
        self._set_config(check(self.cfg, Config))
        context = replace(context, builder=self.builder, identity=identity(self.cfg))
        return self.train_or_assist(context, stop, {}, search=outcome)

    def train_or_assist(
        self, context: RunContext, stop: StopRequest, built: Models, **more: Any
    ) -> dict[str, Any]:
        """Trains the models; with the process that keeps the run, if there is one.

        If that process dies, this one takes its place.

        Raises:
            Busy: another process trains the only model.
        """
        read = partial(self.world.broadcast_from_main, self.folder.read_summary)
        assists = False
        while True:
            with ExitStack() as stack:
                try:
                    stack.enter_context(self.locked())
                except Busy as busy:
                    if self.world.size > 1 or self.config.overwrite or len(context.jobs()) == 1:
                        raise
                    if not assists:
                        print_line(f"note: {busy.holder} keeps this run; training it together")
                    assists = True
                    built.clear()
                    assist(context, stop, self.folder)
                    wait(stop)
                    continue
                if (summary := read()) is None:  # no other process has finished it meanwhile
                    if not more:
                        self.begin(context)
                    return self.train(context, self.world.share_stop_request(stop), built, **more)
            return self.leave_finished(summary)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes out of the folder and writes `train.log`, on the first process."""
        with ExitStack() as stack:

            def enter() -> None:
                stack.enter_context(self.folder.locked())
                if self.config.overwrite and self.config.search is None:
                    self.folder.clear()
                stack.enter_context(write_log(self.folder.path, "run"))

            self.world.run_on_main(enter)
            yield

    def _check_dataset(self, index: ImageIndex) -> None:
        self.folder.check_dataset(index.name, index.fingerprint(), len(index.labels))

    def begin(self, context: RunContext) -> None:
        """Writes config and command, and prints what batches hold, and notes on the config."""

        def write_config() -> None:
            self._check_dataset(context.index)
            self.folder.write_config(self.cfg)
            if self.overrides is not None:
                self.folder.write_command(self.overrides)

        self.world.broadcast_from_main(write_config)
        log_start(versions())
        data, jobs = self.config.data, context.jobs()
        m = None if data.sampler == "random" else data.images_per_class
        drawn = f"{data.batch_size // m} groups of {m} of a class" if m else "drawn at random"
        if self.config.speed == "fast" and context.device.type == "cuda":
            print_line(f"speed: fast (precision={self.config.precision}, channels_last=true)")
        print_line(f"batches of {data.batch_size} images, {drawn} (data.sampler={data.sampler})")
        notes = [*find_notes(self.config)]
        c = self.config
        if context.device.type == "cuda" and c.precision == "fp32" and not data.stand_in:
            notes.append(
                "speed: on a GPU, speed=fast and precision=bf16 may save time (runs of their own: "
                "they round differently), and so may data.cache=full and compile=true"
            )
        if alike := sum(map(validates_one_class, jobs)):
            notes.append(
                f"{context.index.name} leaves {alike} of {len(jobs)} models one class to validate "
                f"on, where every score is 100: their epoch is the first that was evaluated"
            )
        if {*jobs[0].train.classes} & {*jobs[0].validation.query.classes}:
            notes.append("few classes: the epoch is selected on a third of their images")
        for note in notes:
            print_line(f"note: {note}")
        run_logger.info("device: %s", device_name(context.device))

    def train(
        self,
        context: RunContext,
        stop: Callable[[], RunStopped | None],
        built: Models,
        **more: Any,
    ) -> dict[str, Any]:
        """Trains all models, draws the curves, and writes the summary (with `more`) last."""
        started = time.monotonic()
        world, folder, tracker, jobs = self.world, self.folder, self.tracker, context.jobs()
        config, keys = self.config, [job.key for job in jobs]
        describe = partial(self._tracker_info, keys)
        with track_run(tracker, world.broadcast_from_main(describe)):
            results = train_jobs(context, jobs, folder, tracker, stop, built=built)
            with raise_on_signals(saved=True) if world.size == 1 else nullcontext():
                score = partial(_score_ensembles, context, jobs, folder)
                ensembles = world.broadcast_from_main(score)
                draw = partial(draw_curves, config, folder.history, keys, folder.figures)
                world.broadcast_from_main(draw)
            summary = summarize(config, jobs[0].test.query, results, ensembles, context.device)
            seconds = round(time.monotonic() - started, 2)
            summary |= {"wall_seconds": seconds, "processes": world.size, **more}
            tracker.conclude(summary, folder.pictures())
            world.broadcast_from_main(lambda: folder.write_summary(summary))
        return self._show(summary)

    def _tracker_info(self, jobs: Sequence[tuple[int, int]]) -> RunInfo:
        """Returns the description of the run, which trains these (repeat, fold)."""
        folder, config = self.folder, self.config
        plain: Any = OmegaConf.to_container(self.cfg, resolve=True)
        del plain["tracking"]
        plain["run"] = {
            "result_id": result_id(config),
            "protocol_id": protocol_id(config),
            "selected_on": config.protocol.selected_on,
            "stand_in": config.data.stand_in,
            "folder": str(folder.path),
        }
        tags = [config.data.name, config.protocol.name, *["stand-in"] * config.data.stand_in]
        return RunInfo(
            folder=folder.path,
            run_id=folder.run_id(),
            name=config.name or f"{folder.path.parent.name} seed{config.seed}",
            group=config.experiment.id,
            config=mask_options(plain),
            jobs=jobs,
            tags=tags,
            notify=print_line,
        )

    def _show(self, summary: dict[str, Any]) -> dict[str, Any]:
        print_results(summary)
        for picture in self.folder.pictures():
            print_line(f"picture     {picture}")
        print_line(f"run folder  {self.folder.path}")
        return summary


def _score_ensembles(
    context: RunContext, jobs: Sequence[Job], folder: RunFolder
) -> list[dict[str, Any]] | None:
    """Returns the scores of the concatenated models of each repeat; None for one model a repeat."""
    config = context.config
    if FOLDS[config.protocol.splits] == 1:
        return None
    scores = []
    for repeat, folds in groupby(jobs, lambda job: job.repeat):
        files = [folder.job(job.name) / EMBEDDINGS for job in folds]
        embeddings = concatenate_models(files, config.embedder["normalize"], context.device)
        recall_at, size = context.index.recall_at, embeddings.query.shape[1]
        metrics = embeddings.score(recall_at, config.evaluation.backend)
        scores.append({"repeat": repeat, "metrics": metrics, "embedding_size": size})
    return scores
