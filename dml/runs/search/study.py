"""The study that all workers of a search share: its trials, their leases and results.

A trial belongs to the worker that holds the lock of its folder, which the system frees when the
worker dies; host, process and time are attributes of the trial. Another lock guards the numbering,
so that no number is lost or used twice: the trial of a dead worker keeps its number and its
parameters, and continues from its checkpoints.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from dml.config.schema import SearchConfig
from dml.core.errors import UserError, first_line
from dml.core.fault_injection import fault_point
from dml.core.locks import Busy, wait_for_lock
from dml.core.secrets import mask_text
from dml.runs.folder.run_folder import RunFolder
from dml.runs.search.proposals import Params, Space, propose

WORKER = "worker"  # attribute: host and process of the worker, and when it renewed its lease
REASON = "reason"  # attribute: of a failure
HOST = socket.gethostname()


class Study:
    """The shared study of a run.

    Attributes:
        optuna_study: its trials, as Optuna shows them.
        storage: of the trials.
        first: values that the first trial has instead of proposed ones.

    Args:
        folder: of the run; trials have folders in it.
        config: the node `search`.
        space: the searched options.
        seed: of the proposals.
    """

    def __init__(self, folder: RunFolder, config: SearchConfig, space: Space, seed: int) -> None:
        self.folder, self.config, self.space, self.seed = folder, config, space, seed
        self.first: Params = {}
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._locks = ExitStack()
        self._renewed = 0.0
        with self._lock_numbering():
            self.storage = _open_storage(folder, config.storage)
            # With the id of the run: a database may hold the study of an overwritten run, or of a
            # run with the same config elsewhere.
            name = "/".join((*folder.path.parts[-3:], folder.run_id()))
            self.optuna_study = optuna.create_study(
                storage=self.storage, study_name=name, direction="maximize", load_if_exists=True
            )

    def complete_trials(self) -> list[FrozenTrial]:
        """Returns the complete trials, by number."""
        return self.optuna_study.get_trials(states=[TrialState.COMPLETE])

    def best_trial(self) -> FrozenTrial | None:
        """Returns the first complete trial with the highest score; None if no trial is complete."""
        return max(self.complete_trials(), key=lambda trial: trial.value or 0.0, default=None)

    def has_open_trials(self) -> bool:
        """Returns True if trials are missing or unfinished."""
        finished = [trial.state.is_finished() for trial in self.optuna_study.trials]
        return len(finished) < self.config.trials or not all(finished)

    def claim_trial(self) -> FrozenTrial | None:
        """Returns the trial of a dead worker, or a new one; None if others have all trials."""
        with self._lock_numbering():
            trials, c = self.optuna_study.trials, self.config
            for trial in trials:
                worker = trial.user_attrs.get(WORKER) or {"host": HOST}
                # Locks may not work between machines, so that a lease must expire first.
                alive = worker["host"] != HOST and time.time() - worker["heard"] < c.lease_seconds
                if not (trial.state.is_finished() or alive):
                    with suppress(Busy):
                        self._lock_trial(trial.number)
                        self._set_lease(trial)
                        return trial
            if len(trials) >= c.trials:
                return None
            params = propose(len(trials), self.space, trials, c.sampler, c.startup, self.seed)
            if not trials:
                params |= self.first
            self._lock_trial(len(trials))
            fault_point("before_claim")
            # Created at once with all its parts, so that no trial is ever without parameters.
            template = create_trial(
                state=TrialState.RUNNING,
                params=params,
                distributions=self.space,
                user_attrs={WORKER: self._lease()},
            )
            trial_id = self.storage.create_new_trial(self.optuna_study._study_id, template)
            fault_point("after_claim")
            return self.storage.get_trial(trial_id)

    def renew_lease(self, trial: FrozenTrial) -> None:
        """Renews the lease of a trial; cheap enough to call at every step."""
        if time.monotonic() - self._renewed > self.config.lease_seconds / 10:
            self._set_lease(trial)

    def report_score(self, trial: FrozenTrial, fold: int, value: float) -> None:
        """Stores the mean validation score of the folds so far."""
        self.storage.set_trial_intermediate_value(trial._trial_id, fold, value)

    def finish(
        self, trial: FrozenTrial, state: TrialState, value: float | None = None, reason: str = ""
    ) -> None:
        """Stores the result of a trial, unless another worker has taken it over."""
        with self._lock_numbering():
            stored = self.storage.get_trial(trial._trial_id)
            worker = stored.user_attrs.get(WORKER) or {}
            here = (worker.get("host"), worker.get("process")) == (HOST, os.getpid())
            if here and not stored.state.is_finished():
                if reason:
                    self.storage.set_trial_user_attr(trial._trial_id, REASON, reason)
                values = None if value is None else [value]
                self.storage.set_trial_state_values(trial._trial_id, state, values)
        self._locks.close()

    def release(self, trial: FrozenTrial) -> None:
        """Gives up an unfinished trial, which the next worker continues."""
        self.storage.set_trial_user_attr(trial._trial_id, WORKER, None)
        self._locks.close()

    def trial_folder(self, number: int) -> RunFolder:
        """The folder of a trial: history, logs and, while it is trained, checkpoints."""
        return RunFolder(self.folder.trials / f"{number:04d}")

    def _lock_trial(self, number: int) -> None:
        """Locks the folder of a trial; Busy if another worker has it."""
        self._locks.enter_context(self.trial_folder(number).locked())

    def _set_lease(self, trial: FrozenTrial) -> None:
        self.storage.set_trial_user_attr(trial._trial_id, WORKER, self._lease())

    def _lease(self) -> dict[str, Any]:
        self._renewed = time.monotonic()
        return {"host": HOST, "process": os.getpid(), "heard": round(time.time())}

    def _lock_numbering(self) -> AbstractContextManager[None]:
        """Admits one worker at a time; the system frees the lock of a worker that dies."""
        return wait_for_lock(self.folder.search / "claim.lock")


def _open_storage(folder: RunFolder, url: str | None) -> BaseStorage:
    if url is None:
        return open_journal(folder.journal)
    try:
        return optuna.storages.get_storage(url)
    except Exception as error:  # SQLAlchemy's and its drivers' errors have no common class
        reason = mask_text(first_line(error.__cause__ or error))  # the cause names a missing driver
        raise UserError(f"search.storage: cannot be opened: {reason}") from error


def open_journal(path: Path) -> JournalStorage:
    """Opens the journal at `path`, without a last line that a full disk has cut short."""
    # The system's lock is freed at once when its holder is killed; Optuna's own blocks the others
    # for half a minute.
    lock: Any = FileLock(path.with_suffix(".lock"), fallback_to_soft=False)
    backend = JournalFileBackend(str(path), lock_obj=lock)
    with lock:
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    return JournalStorage(backend)
