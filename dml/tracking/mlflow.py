"""MLflow: an MLflow run for every model of a run, copied from `history.csv`.

There is one MLflow run per (repeat, fold), so that `map_at_r` has the same name in all of them. A
run with several models has an additional one, their parent, with the combined scores and the
figures. Each trial of a search is a child with its options and its score.

A tag, `dml.run`, identifies the runs of MLflow that belong to a run folder, and their metrics and
steps what they have of `history.csv`. A killed run can therefore be resumed on any machine; what an
unreachable server lacks, it gets as soon as it answers, or by the same command.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath
from typing import Any

from filelock import FileLock

from dml.core.errors import UserError, first_line
from dml.core.installation import git_revision
from dml.core.secrets import mask_options, mask_text
from dml.tracking.history import History
from dml.tracking.tracker import Job, RunInfo, Tracker, flatten_scores, replace_options

MAIN = "main"  # part of a run: its only model, or the parent of its models and trials
RUN, PART, COMPLETE = "dml.run", "dml.part", "dml.complete"  # tags
IDS = ("repeat", "fold", "step")  # columns that identify a row and are not sent as values
LONGEST_KEY, LONGEST_PARAM, LONGEST_TAG, LONGEST_NAME = 250, 6000, 5000, 500  # characters
LONGEST_REASON = 300  # characters
PER_REQUEST = 1000  # metrics
KIND = {"mlflow.experimentKind": "custom_model_development"}  # else the pages are for chatbots
RETRY_SECONDS = 60.0  # between two attempts to reach MLflow
SWITCH_OFF = "tracking=none switches tracking off"
# MLflow waits minutes for a server by default, prints links of its own, and reports its use to its
# makers. They are set once: other threads read the environment while a training runs.
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",  # seconds
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
SQLITE = "sqlite:///"
DATABASE = re.compile(r"(sqlite|postgresql|mysql|mssql)(\+\w+)?:", re.IGNORECASE)


@dataclass
class _Sent:
    """A run of MLflow, and what it has received.

    Attributes:
        id: of MLflow.
        is_complete: it lacks nothing.
        params: names of its parameters.
        metrics: names of its metrics.
        points: (metric, step) of all their values; None: not asked for yet.
        is_open: this process writes to it.
    """

    id: str
    is_complete: bool = False
    params: set[str] = field(default_factory=set)
    metrics: set[str] = field(default_factory=set)
    points: set[tuple[str, int]] | None = None
    is_open: bool = False


class MLflowTracker(Tracker):
    """A tracker that copies a run to MLflow: a server, or a database on this machine.

    Args:
        experiment: name of MLflow's experiment, 1–500 characters; it is made if there is none.
        uri: address of the server or database; None: MLflow's default, `MLFLOW_TRACKING_URI` or
            `mlflow.db` in the working directory.
        tags: additional tags, name → value.
        artifacts: also upload the best weights of each model.

    Raises:
        UserError: mlflow is not installed, or does not accept the experiment, the address or a tag.
    """

    keeps_a_copy = True
    server = "MLflow"

    def __init__(
        self,
        experiment: str = "dml-benchmark",
        uri: str | None = None,
        tags: Mapping[str, Any] | None = None,
        artifacts: bool = False,
    ) -> None:
        self.mlflow = _import_mlflow()
        self.experiment, self.artifacts = str(experiment), artifacts
        if not 1 <= len(self.experiment) <= LONGEST_NAME:
            raise UserError(
                f"tracking.experiment: '{self.experiment}' has {len(self.experiment)} characters; "
                f"MLflow takes 1 to {LONGEST_NAME}"
            )
        self.tags = _check_tags(tags or {})
        self.uri = str(uri or self.mlflow.get_tracking_uri())
        self._check_uri()
        self._is_shown = False

    def _check_uri(self) -> None:
        """Raises UserError if MLflow does not accept the address; no server is asked.

        A database is opened by the training, which a missing one must not stop.
        """
        try:
            if DATABASE.match(self.uri):
                importlib.import_module("sqlalchemy").create_engine(self.uri)
            else:
                self.mlflow.MlflowClient(tracking_uri=self.uri)
        except Exception as error:
            raise UserError(
                f"tracking.uri: MLflow does not take '{mask_text(self.uri)}' ({_reason(error)}); a "
                f"server is http://<host>:5000, a database {SQLITE}mlflow.db; {SWITCH_OFF}"
            ) from error

    def start(self, run: RunInfo) -> None:
        """Begins a run; runs of MLflow are opened at the first row."""
        self.info = run
        self._client: Any = None
        self._sent: dict[str, _Sent] = {}  # part → run of MLflow
        self._left: list[Callable[[], None]] = []  # what MLflow did not take
        self._model_scores: dict[str, float] = {}  # of the only model
        self._model_files: dict[Path, str] = {}
        self._next_try = -float("inf")
        self._has_failed = False

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Sends one row; before the first one, the rows of earlier processes."""
        job = (int(metrics["repeat"]), int(metrics["fold"]))

        def send_row() -> None:
            if not self._is_complete(self._part(job)):
                self._send(job, [{**metrics, "step": step}])

        self._attempt(send_row)
        if send_row in self._left:  # the next attempt reads it from the history
            self._left.remove(send_row)

    def job_done(self, result: dict[str, Any]) -> None:
        """Sends the missing rows of a model, and its final scores."""
        job = (result["repeat"], result["fold"])
        part = self._part(job)

        def finish_job() -> None:
            if self._is_complete(part):
                return
            sent = self._send(job, ())
            scores = flatten_scores(result, "test")
            files = {}
            if self.artifacts:
                files[self.info.folder / "checkpoints" / _job_type(job) / "best.pt"] = "checkpoints"
            if part == MAIN:  # the run completes it; MLflow replaces no value, and it has others
                self._model_scores, self._model_files = scores, files
                return
            self._add_scores(sent, scores)
            self._close(part, "FINISHED", self._upload(sent, files))

        self._attempt(finish_job)

    def trial_done(self, trial: dict[str, Any]) -> None:
        """Sends a trial of a search."""
        part = f"trial{trial['number']}"

        def send_trial() -> None:
            if self._is_complete(part):
                return
            options = {**trial["params"], **trial.get("options", {})}
            tags = {"job_type": "trial", "trial": trial["number"], "state": trial["state"]}
            with FileLock(self.info.folder / "mlflow.lock"):
                self._look_again()  # another process of the search may have sent it
                if self._is_complete(part):
                    return
                self._open(MAIN, self._main_tags(), None)  # its options are those of the best trial
                sent = self._open(part, tags, options)
                if trial["value"] is not None:
                    self._add_scores(sent, {"score": float(trial["value"])})
                self._close(part, "FAILED" if trial["state"] == "fail" else "FINISHED")

        self._attempt(send_trial)

    def conclude(self, summary: dict[str, Any], pictures: Sequence[Path]) -> None:
        """Sends the final scores, figures and files of the run, and completes it."""
        is_single = len(self.info.jobs) == 1

        def send_summary() -> None:
            if self._is_complete(MAIN):
                return
            if is_single:
                sent = self._send(self.info.jobs[0], ())
            else:
                sent = self._open(MAIN, self._main_tags(), {})
            # A different name than in the runs of the models, so that no chart averages both.
            scores = flatten_scores(summary, "test" if is_single else "combined")
            self._add_scores(sent, self._model_scores | scores)
            files = self._model_files | dict.fromkeys(pictures, "figures")
            for name in ("config.yaml", "summary.json"):
                if (self.info.folder / name).is_file():
                    files[self.info.folder / name] = ""
            self._close(MAIN, "FINISHED", self._upload(sent, files))

        self._attempt(send_summary)

    def finish(self, status: int = 0) -> None:
        """Closes all open runs of MLflow, after a last attempt to send what it lacks."""
        end = "FAILED" if status == 1 else "KILLED"

        def close_all() -> None:
            for part, sent in self._sent.items():
                if sent.is_open and status:  # else a search has ended, and the training begins
                    self._close(part, end, is_complete=False)

        if self._left or self._sent:
            self._next_try = -float("inf")
            self._attempt(close_all)

    def _part(self, job: Job) -> str:
        """Returns the part of a run that a model is."""
        return MAIN if len(self.info.jobs) == 1 else _job_type(job)

    def _is_complete(self, part: str) -> bool:
        self._connect()
        return part in self._sent and self._sent[part].is_complete

    def _connect(self) -> None:
        """Connects to MLflow, and asks for the runs that it has of this run; once.

        Raises:
            UserError: the experiment was deleted.
        """
        if self._client is not None:
            return
        with self._lock_database():
            client = self.mlflow.MlflowClient(tracking_uri=self.uri)
        self._experiment_id = self._find_experiment(client)
        self._client, self._sent = client, self._find_sent(client)

    def _look_again(self) -> None:
        """Asks for the runs that MLflow has now; those that are open here stay as they are."""
        for part, known in self._find_sent(self._client).items():
            if part not in self._sent or not self._sent[part].is_open:
                self._sent[part] = known

    def _find_sent(self, client: Any) -> dict[str, _Sent]:
        """Returns what MLflow has of this run: part → run of MLflow."""
        condition = f"tags.`{RUN}` = '{self.info.run_id}'"
        page = None
        sent: dict[str, _Sent] = {}
        while page is None or page.token:
            page = client.search_runs(
                [self._experiment_id],
                filter_string=condition,
                order_by=["attributes.start_time ASC"],
                page_token=page and page.token,
            )
            for run in page:
                tags = run.data.tags
                known = _Sent(run.info.run_id, COMPLETE in tags, set(run.data.params))
                known.metrics = set(run.data.metrics)
                sent.setdefault(tags.get(PART, ""), known)
        return sent

    @contextmanager
    def _lock_database(self) -> Iterator[None]:
        """Keeps other processes from making the tables of a database at the same time."""
        folder = self._folder_of_database()
        if folder is None:
            yield
            return
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self.uri.partition(SQLITE)[2]}.lock"):
            yield

    def _folder_of_database(self) -> Path | None:
        """Returns the folder of the database that the address names; None: it is no such file."""
        name = self.uri.removeprefix(SQLITE)
        return Path(name).parent if name and name != self.uri else None

    def _find_experiment(self, client: Any) -> str:
        """Returns the id of the experiment, which is made if there is none."""
        known = client.get_experiment_by_name(self.experiment)
        if known is None:
            try:
                return str(client.create_experiment(self.experiment, tags=KIND))
            except self.mlflow.MlflowException:
                known = client.get_experiment_by_name(self.experiment)
                if known is None:  # no other process has just made it
                    raise
        if known.lifecycle_stage == "deleted":
            raise UserError(
                f"tracking.experiment: '{self.experiment}' is deleted in MLflow; restore it by "
                f"`mlflow experiments restore -x {known.experiment_id}`, or choose another name"
            )
        return str(known.experiment_id)

    def _open(self, part: str, tags: Mapping[str, Any], options: Mapping[str, Any] | None) -> _Sent:
        """Returns a run of MLflow that is new or continues, with the parameters of a part.

        Args:
            part: of the run; the main one is open before its models and trials.
            tags: those in which parts differ.
            options: dotted options in which its config differs from the run's; None: it gets no
                parameters yet.
        """
        self._connect()
        if part not in self._sent or not self._sent[part].is_open:
            described = self._describe(part, tags)
            if part != MAIN:
                described["mlflow.parentRunId"] = self._sent[MAIN].id
            self._begin(part, described)
        sent = self._sent[part]
        if options is not None:
            self._add_params(sent, replace_options(self.info.config, options))
        return sent

    def _main_tags(self) -> dict[str, Any]:
        """Returns the tags of the main run: those of its only model, or of several."""
        jobs = self.info.jobs
        return _job_tags(jobs[0]) if len(jobs) == 1 else {"job_type": "combined"}

    def _begin(self, part: str, tags: Mapping[str, str]) -> None:
        """Creates a run of MLflow, or continues one."""
        name = self.info.name if part == MAIN else f"{self.info.name} {part}"
        if part in self._sent:
            sent = self._sent[part]
            self._client.update_run(sent.id, status="RUNNING", name=name)
            changed = [self.mlflow.entities.RunTag(*tag) for tag in tags.items()]
            self._client.log_batch(sent.id, tags=changed, synchronous=True)
        else:
            run = self._client.create_run(self._experiment_id, tags=tags, run_name=name)
            sent = self._sent[part] = _Sent(run.info.run_id, points=set())
        sent.is_open = True
        if part == MAIN:
            self._show(sent)

    def _describe(self, part: str, more: Mapping[str, Any]) -> dict[str, str]:
        """Returns the tags of a part of the run."""
        info = self.info
        described: dict[str, Any] = {
            **info.config.get("run", {}),
            "group": info.group,
            "labels": ", ".join(info.tags),
            **more,
        }
        note = info.config.get("note")
        standard = {
            RUN: info.run_id,
            PART: part,
            "mlflow.note.content": note,
            "mlflow.source.name": Path(sys.argv[0]).name,
            "mlflow.source.type": "LOCAL",
            "mlflow.source.git.commit": git_revision(),
            "mlflow.user": os.environ.get("USER"),
        }
        tags = {}
        for name, value in mask_options(described | self.tags | standard).items():
            if value is not None:
                tags[_key(name)] = _text(value)[:LONGEST_TAG]
        return tags

    def _add_params(self, sent: _Sent, config: Mapping[str, Any]) -> None:
        """Adds the options that a run of MLflow lacks; MLflow takes none twice."""
        params = []
        for name, value in _flatten(mask_options({**config, "run": {}})).items():
            if name not in sent.params:
                params.append(self.mlflow.entities.Param(name, _text(value)[:LONGEST_PARAM]))
        for batch in _batches(params, 100):
            self._client.log_batch(sent.id, params=batch, synchronous=True)
        sent.params |= {param.key for param in params}

    def _send(self, job: Job, rows: Sequence[dict[str, Any]]) -> _Sent:
        """Sends the missing rows of a model; returns its run of MLflow."""
        part = self._part(job)
        sent = self._sent.get(part)
        if sent is None or not sent.is_open:
            self._open(MAIN, self._main_tags(), {})
            sent = self._open(part, _job_tags(job), {})
            rows = [*History(self.info.folder / "history.csv").job_rows(*job), *rows]
        values = []
        for row in rows:
            for name, value in row.items():
                if name not in IDS:
                    values.append((name, float(value), int(row["step"])))
        self._add_metrics(sent, values)
        return sent

    def _add_scores(self, sent: _Sent, scores: Mapping[str, float]) -> None:
        """Adds final scores, at step 0: MLflow draws them as bars then."""
        self._add_metrics(sent, [(name, float(value), 0) for name, value in scores.items()])

    def _add_metrics(self, sent: _Sent, values: Sequence[tuple[str, float, int]]) -> None:
        """Adds those of some (metric, value, step) that a run of MLflow lacks."""
        now, points = int(time.time() * 1000), self._points(sent)
        added = {}
        for name, value, step in values:
            point = (_key(name), step)
            if point not in points:
                added[point] = self.mlflow.entities.Metric(point[0], value, now, step)
        for batch in _batches(list(added.values()), PER_REQUEST):
            self._client.log_batch(sent.id, metrics=batch, synchronous=True)
        points.update(added)

    def _points(self, sent: _Sent) -> set[tuple[str, int]]:
        """Returns the (metric, step) that a run of MLflow has."""
        if sent.points is None:
            sent.points = set()
            for name in sent.metrics:
                for metric in self._client.get_metric_history(sent.id, name):
                    sent.points.add((name, metric.step))
        return sent.points

    def _upload(self, sent: _Sent, files: Mapping[Path, str]) -> bool:
        """Uploads files into folders; returns whether MLflow took them.

        Files are often stored elsewhere than runs, with keys that a machine may lack; that costs no
        curve.
        """
        try:
            for path, folder in files.items():
                self._client.log_artifact(sent.id, str(path), folder or None)
        except Exception as error:
            self.info.notify(
                f"note: tracking: MLflow did not take the files of the run ({_reason(error)}); "
                f"the same command sends them again"
            )
            return False
        return True

    def _close(self, part: str, status: str, is_complete: bool = True) -> None:
        """Ends a run of MLflow with a status of MLflow."""
        sent = self._sent[part]
        self._client.set_terminated(sent.id, status)
        if is_complete:  # written last: what is not marked is completed by the same command
            self._client.set_tag(sent.id, COMPLETE, "true")
        sent.is_open, sent.is_complete = False, is_complete

    def _show(self, sent: _Sent) -> None:
        """Prints the address of the main run, or the command that shows it, once."""
        if self._is_shown:
            return
        self._is_shown = True
        where = f"{self.uri.rstrip('/')}/#/experiments/{self._experiment_id}/runs/{sent.id}"
        if not self.uri.startswith(("http://", "https://")):
            where = shlex.join(["mlflow", "ui", "--backend-store-uri", self.uri])
        self.info.notify(f"MLflow      {mask_text(where)}")

    def _attempt(self, work: Callable[[], None]) -> None:
        """Calls what is left of earlier attempts, then `work`; MLflow must not end a training run.

        After a failure, nothing is tried for `RETRY_SECONDS`, since each attempt may take a while.
        """
        self._left.append(work)
        if time.monotonic() < self._next_try:
            return
        try:
            while self._left:
                self._left[0]()
                self._left.pop(0)
        except Exception as error:
            self._client, self._sent = None, {}  # what has arrived is asked for again
            self._next_try = time.monotonic() + RETRY_SECONDS
            if not self._has_failed:
                self.info.notify(
                    f"note: tracking: MLflow at {mask_text(self.uri)} failed ({_reason(error)}); "
                    f"the run continues without it; when MLflow works again, it gets the missing "
                    f"rows, at the latest by the same command"
                )
            self._has_failed = True
            return
        if self._has_failed:
            self.info.notify("note: tracking: MLflow works again, and has the missing rows")
            self._has_failed = False


def _import_mlflow() -> Any:
    """Returns the module, which says nothing on its own.

    Raises:
        UserError: it is not installed.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():  # it changes what is shown of others
            module = importlib.import_module("mlflow")
    except ImportError as error:
        raise UserError(f"tracking: {error}; pip install mlflow, or {SWITCH_OFF}") from error
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # warns of each attempt
    return module


def _check_tags(tags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tags of the user.

    Raises:
        UserError: they are no mapping, or MLflow does not take a name.
    """
    if not isinstance(tags, Mapping):
        raise UserError("tracking.tags: MLflow has names and values, such as {team: vision}")
    for name in tags:
        if str(name) != _key(str(name)):
            raise UserError(
                f"tracking.tags: MLflow takes 1 to {LONGEST_KEY} letters, digits and ./_- of a "
                f"name, not '{name}'"
            )
    return dict(tags)


def _flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Returns dotted name → value of nested dictionaries; empty ones are left out."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{dotted}.")
        else:
            flat[_key(dotted)] = value
    return flat


def _key(name: str) -> str:
    """Returns a name that MLflow takes: it is a file for some stores."""
    plain = re.sub(r"[^\w/. -]", "_", name)
    parts = [part for part in normpath(plain).split("/") if part not in ("", ".", "..")]
    return "/".join(parts)[-LONGEST_KEY:] or "_"


def _text(value: Any) -> str:
    """Returns a text as it is, and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _batches(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def _reason(error: BaseException) -> str:
    """Returns the first line of an exception, without secrets and not too long.

    Of a failed connection, that of its cause: MLflow says it last, after the address and all that
    its libraries add.
    """
    root = error
    while root.__cause__ or root.__context__:
        root = root.__cause__ or root.__context__  # type: ignore[assignment]
    if isinstance(root, OSError):
        error = root
    line = mask_text(first_line(error))
    if len(line) > LONGEST_REASON:
        line = f"{line[:LONGEST_REASON]}…"
    return line if isinstance(error, UserError) else f"{type(error).__name__}: {line}"


def _job_tags(job: Job) -> dict[str, Any]:
    return {"job_type": _job_type(job), "repeat": job[0], "fold": job[1]}


def _job_type(job: Job) -> str:
    return f"repeat{job[0]}-fold{job[1]}"
