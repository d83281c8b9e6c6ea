"""The study that all workers of a search share: its trials, their leases and results.

A trial belongs to the worker that holds the lock of its folder, which the system frees when the
worker dies; host, process and time are attributes of the trial. Another lock guards the numbering,
so that no number is lost or used twice: the trial of a dead worker keeps its number and its
parameters, and continues from its checkpoints.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.storages.journal._storage import JournalOperation
from optuna.trial import FrozenTrial, TrialState, create_trial

from dml.config.schema import SearchConfig
from dml.core.errors import UserError, first_line
from dml.core.fault_injection import fault_point
from dml.core.locks import Busy, wait_for_lock
from dml.runs.console import print_line
from dml.runs.folder.run_folder import RunFolder
from dml.runs.search.proposals import propose

WORKER = "worker"  # attribute: host and process of the worker, and when it renewed its lease
REASON = "reason"  # attribute: of a failure
OPEN = (TrialState.RUNNING, TrialState.WAITING)


@dataclass(frozen=True)
class ClaimedTrial:
    """A trial that this process has to train.

    Attributes:
        id: of Optuna's storage.
        number: from 0.
        params: dotted option → value.
    """

    id: int
    number: int
    params: dict[str, Any]


class Study:
    """The shared study of a run.

    Args:
        folder: of the run; trials have folders in it.
        config: the node `search`.
        space: the searched options.
        seed: of the proposals.
    """

    def __init__(
        self,
        folder: RunFolder,
        config: SearchConfig,
        space: dict[str, BaseDistribution],
        seed: int,
    ) -> None:
        self.folder, self.config, self.space, self.seed = folder, config, space, seed
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.storage = _open_storage(folder, config.storage)
        with self._lock_numbering():
            # With the id of the run: a database may hold the study of an overwritten run, or of a
            # run with the same config elsewhere.
            self.name = "/".join((*folder.path.parts[-3:], folder.run_id()))
            optuna.create_study(
                storage=self.storage,
                study_name=self.name,
                direction="maximize",
                load_if_exists=True,
            )
        self.id = self.storage.get_study_id_from_name(self.name)
        self._locks = ExitStack()
        self._renewed = 0.0

    def trials(self) -> list[FrozenTrial]:
        """All trials, by number."""
        return sorted(self.storage.get_all_trials(self.id), key=lambda trial: trial.number)

    def has_open_trials(self) -> bool:
        """Returns True if trials are missing or unfinished."""
        trials = self.trials()
        return len(trials) < self.config.trials or any(trial.state in OPEN for trial in trials)

    def claim_trial(self) -> ClaimedTrial | None:
        """Returns the trial of a dead worker, or a new one; None if others have all trials."""
        with self._lock_numbering():
            trials = self.trials()
            for trial in trials:
                worker = trial.user_attrs.get(WORKER)
                if trial.state in OPEN and self._try_lock(trial.number, worker):
                    self.storage.set_trial_user_attr(trial._trial_id, WORKER, self._lease())
                    return ClaimedTrial(trial._trial_id, trial.number, trial.params)
            if len(trials) >= self.config.trials:
                return None
            c = self.config
            params = propose(len(trials), self.space, trials, c.sampler, c.startup, self.seed)
            self._try_lock(len(trials), None)
            fault_point("before_claim")
            # Created at once with all its parts, so that no trial is ever without parameters.
            template = create_trial(
                state=TrialState.RUNNING,
                params=params,
                distributions=self.space,
                user_attrs={WORKER: self._lease()},
            )
            trial_id = self.storage.create_new_trial(self.id, template)
            fault_point("after_claim")
            return ClaimedTrial(trial_id, len(trials), params)

    def renew_lease(self, trial: ClaimedTrial) -> None:
        """Shows the others that this worker is alive; cheap enough for every step."""
        if time.monotonic() - self._renewed > self.config.lease_seconds / 10:
            self.storage.set_trial_user_attr(trial.id, WORKER, self._lease())
            self._renewed = time.monotonic()

    def report_score(self, trial: ClaimedTrial, fold: int, value: float) -> None:
        """Stores the mean validation score of the folds so far."""
        self.storage.set_trial_intermediate_value(trial.id, fold, value)

    def finish(
        self, trial: ClaimedTrial, state: TrialState, value: float | None = None, reason: str = ""
    ) -> None:
        """Ends a trial, unless another worker has taken it over."""
        with self._lock_numbering():
            stored = self.storage.get_trial(trial.id)
            worker = stored.user_attrs.get(WORKER, {}) or {}
            if stored.state in OPEN and _is_this_process(worker):
                if reason:
                    self.storage.set_trial_user_attr(trial.id, REASON, reason)
                values = None if value is None else [value]
                self.storage.set_trial_state_values(trial.id, state, values)
        self._locks.close()

    def release(self, trial: ClaimedTrial) -> None:
        """Gives up an unfinished trial, which the next worker continues."""
        self.storage.set_trial_user_attr(trial.id, WORKER, None)
        self._locks.close()

    def trial_folder(self, number: int) -> RunFolder:
        """The folder of a trial: history, logs and, while it is trained, checkpoints."""
        return RunFolder(self.folder.trials / f"{number:04d}")

    def _try_lock(self, number: int, worker: dict[str, Any] | None) -> bool:
        """Locks the folder of a trial; returns False if another worker has it."""
        elsewhere = worker is not None and worker["host"] != socket.gethostname()
        # Locks may not work between machines, so that a lease must expire first.
        if elsewhere and time.time() - worker["heard"] < self.config.lease_seconds:  # type: ignore[index]
            return False
        try:
            self._locks.enter_context(self.trial_folder(number).locked())
        except Busy:
            return False
        return True

    def _lease(self) -> dict[str, Any]:
        self._renewed = time.monotonic()
        return {"host": socket.gethostname(), "process": os.getpid(), "heard": round(time.time())}

    def _lock_numbering(self) -> AbstractContextManager[bool]:
        """Admits one worker at a time; the system frees the lock of a worker that dies."""
        return wait_for_lock(self.folder.search / "claim.lock")


def _is_this_process(worker: dict[str, Any]) -> bool:
    return worker.get("host") == socket.gethostname() and worker.get("process") == os.getpid()


def _open_storage(folder: RunFolder, url: str | None) -> BaseStorage:
    folder.search.mkdir(parents=True, exist_ok=True)
    try:
        return open_journal(folder.journal) if url is None else optuna.storages.get_storage(url)
    except Exception as error:  # SQLAlchemy's and its drivers' errors have no common class
        raise UserError(f"search.storage: cannot be opened: {first_line(error)}") from error


def open_journal(path: Path) -> JournalStorage:
    """Opens the journal at `path`, cut at its first unreadable line; a copy is kept.

    Raises:
        UserError: its lines are none of a study.
    """
    lock = _JournalLock(path)
    backend = JournalFileBackend(str(path), lock_obj=lock)
    lock.acquire()
    try:
        _cut_off_damage(path)
    finally:
        lock.release()
    try:
        return JournalStorage(backend)
    except Exception as error:  # Optuna's code trusts its journal
        raise UserError(
            f"search: {path} is not the journal of a search ({first_line(error)}); "
            f"overwrite=true starts anew"
        ) from error


def _cut_off_damage(path: Path) -> None:
    """Removes what a crash, a full disk or another program left: it hides all lines after it."""
    content = path.read_bytes()
    readable = 0
    for line in content.splitlines(keepends=True):
        if not (line.endswith(b"\n") and _is_operation(line)):
            break
        readable += len(line)
    if readable == len(content):
        return
    if b"\n" in content[readable:]:  # more than a last line that was cut short
        copy = path.with_name(f"journal-damaged-{time.strftime('%Y%m%d-%H%M%S')}.log")
        copy.write_bytes(content)
        number = len(content[:readable].splitlines()) + 1
        print_line(
            f"note: search: {path} cannot be read from line {number} on; the trials before it "
            f"count, a copy is {copy.name}"
        )
    os.truncate(path, readable)


def _is_operation(line: bytes) -> bool:
    try:
        entry = json.loads(line)
        JournalOperation(entry["op_code"])
        return isinstance(entry["worker_id"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


class _JournalLock(JournalFileSymlinkLock):
    """The system's lock of the journal: freed at once when its holder is killed.

    On a file system without such locks it is Optuna's symbolic link, whose dead holder blocks the
    others for half a minute.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path = path.with_suffix(".lock")
        self._held = ExitStack()

    def acquire(self) -> bool:
        """Waits for the lock."""
        if not self._held.enter_context(wait_for_lock(self._path, "writing the journal")):
            super().acquire()
            self._held.callback(super().release)
        return True

    def release(self) -> None:
        """Frees the lock."""
        self._held.close()
