"""Weights & Biases: a W&B run for every model of a run, copied from `history.csv`.

One W&B run per (repeat, fold), so that `map_at_r` has the same name in all of them: charts compare
losses and average folds, repeats and seeds by grouping. A run with several models has one more, of
the job type `combined`, with their joint scores and the figures.

The step in W&B is the training step, which identifies the row: rows that W&B has are never sent
again, missing ones are read from `history.csv`. So a run continues wherever it was killed, and
after a lost connection, or without tracking at first, the same command sends the rest.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dml.core.errors import UserError
from dml.tracking.final_scores import flatten_scores
from dml.tracking.history import History
from dml.tracking.tracker import Job, RunInfo
from dml.tracking.wandb_login import SWITCH_OFF, import_wandb, log_in

MODES = ("online", "offline")
COMBINED = "combined"


@dataclass
class OpenRun:
    """A W&B run that is being written.

    Attributes:
        name: id of the run.
        run: object of wandb.
        last: last training step that it has.
    """

    name: str
    run: Any
    last: int


class WandbTracker:
    """A tracker that copies a run to W&B, or into files for `wandb sync`.

    Args:
        project: W&B project; None is W&B's default.
        entity: user or team; None is W&B's default.
        mode: `online`, or `offline` to write files below the run folder.
        tags: words to filter by.
        settings: options of `wandb.Settings`.

    Raises:
        UserError: wandb is not installed, or there is no key for `online`.
    """

    keeps_a_copy = True

    def __init__(
        self,
        project: str | None = None,
        entity: str | None = None,
        mode: str = "online",
        tags: Sequence[str] = (),
        settings: dict[str, Any] | None = None,
    ) -> None:
        if mode not in MODES:
            raise UserError(f"tracking.mode: '{mode}' must be online or offline; {SWITCH_OFF}")
        self.wandb = import_wandb()
        self.project, self.entity, self.mode, self.tags = project, entity, mode, list(tags)
        options = {"quiet": True, "silent": mode == "offline", **(settings or {})}
        try:
            self.settings = self.wandb.Settings(**options)
        except (TypeError, ValueError) as error:
            what = " ".join(str(error).split())
            raise UserError(f"tracking.settings: {what}") from error
        if mode == "online":
            log_in(self.wandb)
        self.sweep = os.environ.get("WANDB_SWEEP_ID")  # set by `wandb agent`
        self._open: dict[str, OpenRun] = {}
        self._failed = self._written = False

    def start(self, run: RunInfo) -> None:
        """Begins a run; nothing is opened before the first row."""
        self.info, self._open, self._failed, self._written = run, {}, False, False
        # An agent names the W&B run it waits for, and reads the score there.
        own = os.environ.get("WANDB_RUN_ID") if self.sweep else None
        self.main_id = own or run.run_id

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Sends one row, and before the first one those of earlier processes."""
        job = (int(metrics["repeat"]), int(metrics["fold"]))
        if not self._is_sent(job):
            self._attempt(lambda: self._send(job, [{**metrics, "step": step}]))

    def job_done(self, result: dict[str, Any]) -> None:
        """Sends the missing rows of a model, and its final scores."""
        job = (result["repeat"], result["fold"])
        if not self._is_sent(job):
            self._attempt(lambda: self._finish_job(job, result))

    def conclude(self, summary: dict[str, Any], pictures: Sequence[Path]) -> None:
        """Sends the final scores and figures of the run."""
        if not self._marker(self.main_id).exists():
            self._attempt(lambda: self._conclude(summary, pictures))

    def finish(self, status: int = 0) -> None:
        """Closes all open W&B runs and waits until they are uploaded."""
        for name in list(self._open):
            self._attempt(lambda name=name: self._close(name, status))  # type: ignore[misc]
        if self._written:
            self.info.notify(f"W&B         wandb sync {self.info.folder}/wandb/offline-run-*")
        if self._failed:
            # The next run of a multirun needs a new service, since this one may have crashed.
            with suppress(Exception):
                self.wandb.teardown(exit_code=1)

    def _id(self, job: Job | None) -> str | None:
        """Returns the id of the W&B run of a model or of the whole run; None if there is none."""
        if job is None or len(self.info.jobs) == 1:
            return self.main_id
        return None if self.sweep else f"{self.main_id}-{_job_type(job)}"

    def _is_sent(self, job: Job) -> bool:
        name = self._id(job)
        return name is None or self._marker(name).exists()

    def _marker(self, name: str) -> Path:
        """Returns a file that exists once all of a W&B run is sent or written."""
        return self.info.folder / "wandb" / f"{name}.{self.mode}"

    def _send(self, job: Job, rows: Sequence[dict[str, Any]]) -> OpenRun:
        """Sends the rows that the W&B run of a model does not have yet."""
        name = self._id(job)
        assert name is not None
        if name not in self._open:
            opened = self._open_run(name, job)
            history = History(self.info.folder / "history.csv").job_rows(*job)
            rows = [*(row for row in history if row["step"] > opened.last), *rows]
        opened = self._open[name]
        for row in rows:
            step = int(row["step"])
            if step > opened.last:
                values = {key: float(row[key]) for key in row if key not in ("repeat", "fold")}
                del values["step"]
                opened.run.log(values, step=step, commit=True)
                opened.last = step
        return opened

    def _finish_job(self, job: Job, result: dict[str, Any]) -> None:
        opened = self._send(job, ())
        opened.run.summary.update(flatten_scores(result, "test"))
        if opened.name != self.main_id:  # which still gets the figures
            self._close(opened.name, 0)

    def _conclude(self, summary: dict[str, Any], pictures: Sequence[Path]) -> None:
        if len(self.info.jobs) == 1:
            opened, section = self._send(self.info.jobs[0], ()), "test"
        else:  # another name than in the models' runs, so that no chart averages both
            opened, section = self._open_run(self.main_id, None), COMBINED
        images = {f"figures/{path.stem}": self.wandb.Image(str(path)) for path in pictures}
        if images:
            opened.run.log(images)  # a new row: the last one of scores is already sent
        opened.run.summary.update(flatten_scores(summary, section))

    def _open_run(self, name: str, job: Job | None) -> OpenRun:
        """Opens a W&B run, new or continued."""
        folder = self.info.folder / "wandb"
        folder.mkdir(exist_ok=True)
        for part in folder.glob(f"offline-run-????????_??????-{name}"):
            shutil.rmtree(part, ignore_errors=True)  # the new run gets all rows again
        kind = COMBINED if job is None else _job_type(job)
        place = {} if job is None else {"repeat": job[0], "fold": job[1]}
        config = {**self.info.config, "run": {**self.info.config.get("run", {}), **place}}
        # Under an agent the sweep sets these.
        where = {} if self.sweep else {"id": name, "project": self.project, "entity": self.entity}
        run = self.wandb.init(
            **where,
            name=self.info.name if name == self.main_id else f"{self.info.name} {kind}",
            group=self.info.group,
            job_type=kind,
            tags=[*self.info.tags, *self.tags],
            config=config,
            dir=str(self.info.folder),
            mode=self.mode,
            resume="allow",
            reinit="create_new",
            settings=self.settings,
        )
        run.define_metric("epoch", hidden=True)
        run.define_metric("*", step_metric="epoch")
        self._open[name] = OpenRun(name, run, run.step - 1)
        if self.mode == "online":
            self.info.notify(f"W&B         {run.url}")
        return self._open[name]

    def _close(self, name: str, status: int) -> None:
        opened = self._open.pop(name)
        opened.run.finish(exit_code=status)
        if status == 0:
            self._marker(name).touch()
        self._written = self.mode == "offline"

    def _attempt(self, work: Callable[[], Any]) -> None:
        """Does some work unless W&B has failed: its crash must not end a training."""
        if self._failed:
            return
        try:
            work()
        except Exception as error:
            self._failed = True
            reason = (str(error).splitlines() or [""])[0]
            self.info.notify(
                f"note: tracking: W&B does not respond ({type(error).__name__}: {reason}); the run "
                f"continues without it; after its end the same command sends the rest"
            )


def _job_type(job: Job) -> str:
    return f"repeat{job[0]}-fold{job[1]}"
