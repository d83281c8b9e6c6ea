"""Weights & Biases: a W&B run for every model of a run, copied from `history.csv`.

There is one W&B run per (repeat, fold), so that `map_at_r` has the same name in all of them: charts
compare losses and average folds, repeats and seeds by grouping. A run with several models has an
additional W&B run of the job type `combined`, with the combined scores and the figures. Each trial
of a search is a W&B run of the job type `trial`, with its options and its score.

The step in W&B is the training step, which identifies a row: rows in W&B are never sent again, and
missing rows are read from `history.csv`. A killed run can therefore be resumed, and after a lost
connection, or a run without tracking, the same command sends the missing rows.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from dml.core.errors import UserError, first_line
from dml.core.installation import is_program
from dml.core.secrets import mask_options, mask_words
from dml.tracking.history import History
from dml.tracking.tracker import Job, RunInfo, Tracker, flatten_scores, replace_options

COMBINED = "combined"
LONGEST_TAG = 64  # characters that W&B accepts; the name of a dataset may be any folder's
IDS = ("repeat", "fold", "step")  # columns that identify a row and are not sent as values
SWITCH_OFF = "tracking=none switches tracking off"


class WandbTracker(Tracker):
    """A tracker that copies a run to W&B, or into files for `wandb sync`.

    Args:
        project: W&B project; None: W&B's default.
        entity: user or team; None: W&B's default.
        mode: `online`, `offline` to write files below the run folder, or `disabled` to do nothing.
        tags: tags to filter runs by.
        artifacts: also upload the best weights of each model, as an artifact of the type `model`,
            and the final scores as a table, `results`.
        settings: options of `wandb.Settings`.

    Raises:
        UserError: wandb is not installed, there is no key for `online`, or W&B does not accept the
            project, a tag or a setting.
    """

    keeps_a_copy = True

    def __init__(
        self,
        project: str | None = None,
        entity: str | None = None,
        mode: Literal["online", "offline", "disabled"] = "online",
        tags: Sequence[str] = (),
        artifacts: bool = False,
        settings: dict[str, Any] | None = None,
    ) -> None:
        try:
            self.wandb: Any = importlib.import_module("wandb")
        except ImportError as error:
            raise UserError(f"tracking: {error}; pip install wandb, or {SWITCH_OFF}") from error
        self.project, self.entity, self.mode = project, entity, mode
        self.keeps_a_copy, self.server = mode != "disabled", "W&B" if mode == "online" else ""
        self.tags = mask_words(map(str, tags))
        self._check_accepted()
        self.artifacts = artifacts
        options: dict[str, Any] = {"quiet": True, "silent": mode == "offline"}
        options |= _mask_described(settings or {})
        try:
            self.settings = self.wandb.Settings(**options)
        except (TypeError, ValueError) as error:
            raise UserError(f"tracking.settings: {' '.join(str(error).split())}") from error
        if mode == "online":
            self._log_in()
        self.sweep = os.environ.get("WANDB_SWEEP_ID")  # set by `wandb agent`
        self._open: dict[str, Any] = {}  # id → wandb's run object
        self._failed = self._written = False

    def _check_accepted(self) -> None:
        """Raises UserError if W&B does not accept the project or a tag."""
        try:
            self.wandb.Settings(project=self.project)
        except Exception as error:  # UsageError of W&B, ValueError of pydantic
            raise UserError(f"tracking.project: {' '.join(str(error).split())}") from error
        for tag in self.tags:
            if not 1 <= len(tag) <= LONGEST_TAG:
                raise UserError(
                    f"tracking.tags: '{tag}' has {len(tag)} characters; W&B takes 1 to "
                    f"{LONGEST_TAG}"
                )

    def _log_in(self) -> None:
        """Logs in with a stored key, without a prompt, which would block a job on a cluster."""
        reason = "there is no key"
        try:
            if self.wandb.login(prompt=False, verify=False):
                return
        except Exception as error:
            reason = first_line(error)
        raise UserError(
            f"tracking.mode: online needs a key of W&B ({reason}); run `wandb login --relogin`, "
            f"set WANDB_API_KEY, or use tracking.mode=offline; {SWITCH_OFF}"
        )

    def start(self, run: RunInfo) -> None:
        """Begins a run; W&B runs are opened at the first row."""
        self.info, self._open, self._written = run, {}, False
        self._failed = self.mode == "disabled"
        # A sweep agent sets the id of the W&B run from which it reads the score.
        self.main_id = (os.environ.get("WANDB_RUN_ID") if self.sweep else None) or run.run_id

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Sends one row; before the first one, the rows of earlier processes."""
        job = (int(metrics["repeat"]), int(metrics["fold"]))
        if not self._is_sent(job):
            self._attempt(lambda: self._send(job, [{**metrics, "step": step}]))

    def job_done(self, result: dict[str, Any]) -> None:
        """Sends the missing rows of a model, and its final scores."""
        job = (result["repeat"], result["fold"])

        def finish_job() -> None:
            name, run = self._send(job, ())
            run.summary.update(flatten_scores(result, "test"))
            if self.artifacts:
                best = self.info.folder / "checkpoints" / _job_type(job) / "best.pt"
                run.log_artifact(str(best), name=name, type="model")
            if name != self.main_id:  # the main run also receives the figures
                self._close(name, 0)

        if not self._is_sent(job):
            self._attempt(finish_job)

    def trial_done(self, trial: dict[str, Any]) -> None:
        """Sends a trial of a search."""
        name = f"{self.main_id}-trial{trial['number']}"

        def send_trial() -> None:
            options = {**trial["params"], **trial.get("options", {})}
            run = self._open_run(name, "trial", {"trial": trial["params"]}, options)
            values = {"trial": trial["number"], "state": trial["state"], "score": trial["value"]}
            run.summary.update(values)
            self._close(name, 0)

        if not self.sweep and not self._marker(name).exists():
            self._attempt(send_trial)

    def conclude(self, summary: dict[str, Any], pictures: Sequence[Path]) -> None:
        """Sends the final scores and figures of the run."""
        is_single = len(self.info.jobs) == 1

        def send_summary() -> None:
            if is_single:
                _, run = self._send(self.info.jobs[0], ())
            else:
                run = self._open_run(self.main_id, COMBINED, {})
            # A different name than in the runs of the models, so that no chart averages both.
            scores = flatten_scores(summary, "test" if is_single else COMBINED)
            row = {}
            for path in pictures:
                row[f"figures/{path.stem}"] = self.wandb.Image(str(path))
            if self.artifacts:
                table = [[name, float(value)] for name, value in scores.items()]
                row["results"] = self.wandb.Table(columns=["score", "value"], data=table)
            if row:  # in a row of its own: the last row of scores is already sent
                run.log(row)
            run.summary.update(scores)

        if not self._marker(self.main_id).exists():
            self._attempt(send_summary)

    def finish(self, status: int = 0) -> None:
        """Closes all open W&B runs and waits until they are uploaded."""
        while self._open and not self._failed:
            self._attempt(lambda: self._close(next(iter(self._open)), status))
        if self._written:
            self.info.notify(f"W&B         wandb sync {self.info.folder}/wandb/offline-run-*")

    def _id(self, job: Job) -> str | None:
        """Returns the id of a model's W&B run; None if there is none."""
        if len(self.info.jobs) == 1:
            return self.main_id
        return None if self.sweep else f"{self.main_id}-{_job_type(job)}"

    def _is_sent(self, job: Job) -> bool:
        name = self._id(job)
        return name is None or self._marker(name).exists()

    def _marker(self, name: str) -> Path:
        """Returns a file that exists once a W&B run is sent or written completely."""
        return self.info.folder / "wandb" / f"{name}.{self.mode}"

    def _send(self, job: Job, rows: Sequence[dict[str, Any]]) -> tuple[str, Any]:
        """Sends the missing rows of a model's W&B run; returns the id of the run, and the run."""
        name = self._id(job)
        assert name is not None
        if name not in self._open:
            self._open_run(name, _job_type(job), {"repeat": job[0], "fold": job[1]})
            earlier_rows = History(self.info.folder / "history.csv").job_rows(*job)
            rows = earlier_rows + list(rows)
        run = self._open[name]
        for row in rows:
            step = int(row["step"])
            if step < run.step:  # already sent
                continue
            values = {}
            for column, value in row.items():
                if column not in IDS:
                    values[column] = float(value)
            run.log(values, step=step, commit=True)
        return name, run

    def _open_run(
        self, name: str, kind: str, more: dict[str, Any], options: Mapping[str, Any] | None = None
    ) -> Any:
        """Opens a new or existing W&B run of a job type.

        Args:
            name: its id.
            kind: its job type.
            more: entries of `run` in its config.
            options: dotted options in which its config differs from the run's.
        """
        folder = self.info.folder / "wandb"
        folder.mkdir(mode=0o700, exist_ok=True)  # the settings of W&B may hold a key
        for part in folder.glob(f"offline-run-????????_??????-{name}"):
            shutil.rmtree(part, ignore_errors=True)  # the new run gets all rows again
        config = replace_options(self.info.config, options or {})
        config["run"] = {**config.get("run", {}), **more}
        # A sweep agent sets these.
        target = {} if self.sweep else {"id": name, "project": self.project, "entity": self.entity}
        with _masked_command_line():
            run = self.wandb.init(
                **target,
                name=self.info.name if name == self.main_id else f"{self.info.name} {kind}",
                group=self.info.group,
                job_type=kind,
                tags=[tag[:LONGEST_TAG] for tag in self.info.tags if tag] + self.tags,
                config=mask_options(config),
                dir=str(self.info.folder),
                mode=self.mode,
                resume="allow",
                reinit="create_new",
                settings=self.settings,
            )
        run.define_metric("epoch", hidden=True)
        run.define_metric("*", step_metric="epoch")
        self._open[name] = run
        if self.mode == "online":
            self.info.notify(f"W&B         {run.url}")
        return run

    def _close(self, name: str, status: int) -> None:
        self._open.pop(name).finish(exit_code=status)
        if status == 0:
            self._marker(name).touch()
        self._written = self.mode == "offline"

    def _attempt(self, work: Callable[[], Any]) -> None:
        """Calls `work` unless W&B has failed; an error of W&B must not end a training run."""
        if self._failed:
            return
        try:
            work()
        except Exception as error:
            self._failed = True
            reason = f"{type(error).__name__}: {first_line(error)}"
            self.info.notify(
                f"note: tracking: W&B failed ({reason}); the run continues without it; when W&B "
                f"works again, the same command sends the missing rows"
            )


@contextmanager
def _masked_command_line() -> Iterator[None]:
    """Hides secrets in `sys.argv`, which W&B records and sends, and completes `dml train`."""
    words = sys.argv
    program, *options = mask_words(words)
    command = ["train"] if is_program(program) else []
    sys.argv = [program, *command, *options]
    try:
        yield
    finally:
        sys.argv = words


def _mask_described(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings without secrets in those that describe a run, which W&B records and sends.

    Others, such as the key, are needed as they are, and are not recorded.
    """
    described = {}
    for name, value in settings.items():
        if name.startswith("run_"):
            described[name] = value
    return {**settings, **mask_options(described)}


def _job_type(job: Job) -> str:
    return f"repeat{job[0]}-fold{job[1]}"
