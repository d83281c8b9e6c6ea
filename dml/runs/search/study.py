"""The study that all workers of a search share: numbers, leases, results.

A trial belongs to the worker that holds the lock of its folder, which the system frees when the
worker dies; host, process and time stand in the trial's attributes. Numbers are given out under
one more lock, so that none is lost or given twice: a dead worker's trial keeps its number and its
parameters, and goes on from its checkpoints.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.trial import FrozenTrial, TrialState, create_trial

from dml.config.schema import SearchConfig
from dml.core.errors import UserError
from dml.core.fault_injection import fault_point
from dml.core.locks import wait_for_lock
from dml.runs.folder.run_folder import Busy, RunFolder
from dml.runs.search.proposals import propose

WORKER = "worker"  # attribute: who has the trial, since when, last heard of when
REASON = "reason"  # attribute: why a trial failed
OPEN = (TrialState.RUNNING, TrialState.WAITING)


@dataclass(frozen=True)
class Claim:
    """A trial that this process has to do.

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
        space: what is varied.
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
        self.storage = _storage(folder, config.storage)
        with self._alone():
            # With the run's own id: a database may hold the study of a run that was overwritten,
            # or of one with the same config elsewhere.
            self.name = "/".join((*folder.path.parts[-3:], folder.run_id()))
            optuna.create_study(
                storage=self.storage, study_name=self.name, direction="maximize",
                load_if_exists=True,
            )  # fmt: skip
        self.id = self.storage.get_study_id_from_name(self.name)
        self._held = ExitStack()
        self._heard = 0.0

    def trials(self) -> list[FrozenTrial]:
        """All trials, by number."""
        return sorted(self.storage.get_all_trials(self.id), key=lambda trial: trial.number)

    def open(self) -> bool:
        """Whether trials are missing or under way."""
        trials = self.trials()
        return len(trials) < self.config.trials or any(trial.state in OPEN for trial in trials)

    def claim(self) -> Claim | None:
        """A dead worker's trial, or else a new one; None: the others have what there is to do."""
        with self._alone():
            trials = self.trials()
            for trial in trials:
                if trial.state in OPEN and self._take(trial.number, trial.user_attrs.get(WORKER)):
                    self.storage.set_trial_user_attr(trial._trial_id, WORKER, self._me())
                    return Claim(trial._trial_id, trial.number, trial.params)
            if len(trials) >= self.config.trials:
                return None
            params = propose(
                len(trials),
                self.space,
                trials,
                sampler=self.config.sampler,
                startup=self.config.startup,
                seed=self.seed,
            )
            self._take(len(trials), None)
            fault_point("before_claim")
            # Created with all its parts at once: no moment at which a trial lacks parameters.
            template = create_trial(
                state=TrialState.RUNNING,
                params=params,
                distributions=self.space,
                user_attrs={WORKER: self._me()},
            )
            trial_id = self.storage.create_new_trial(self.id, template)
            fault_point("after_claim")
            return Claim(trial_id, len(trials), params)

    def heard(self, claim: Claim) -> None:
        """Tells the others that this worker lives; cheap enough to be called at every step."""
        if time.monotonic() - self._heard > self.config.lease_seconds / 10:
            self.storage.set_trial_user_attr(claim.id, WORKER, self._me())
            self._heard = time.monotonic()

    def report(self, claim: Claim, fold: int, value: float) -> None:
        """Mean validation score of the folds so far."""
        self.storage.set_trial_intermediate_value(claim.id, fold, value)

    def finish(
        self, claim: Claim, state: TrialState, value: float | None = None, reason: str = ""
    ) -> None:
        """Ends a trial, unless another worker took it over in the meantime."""
        with self._alone():
            trial = self.storage.get_trial(claim.id)
            mine = trial.user_attrs.get(WORKER, {}) or {}
            if trial.state in OPEN and _same_process(mine):
                if reason:
                    self.storage.set_trial_user_attr(claim.id, REASON, reason)
                values = None if value is None else [value]
                self.storage.set_trial_state_values(claim.id, state, values)
        self._held.close()

    def release(self, claim: Claim) -> None:
        """Gives an unfinished trial back: whoever comes next goes on with it."""
        self.storage.set_trial_user_attr(claim.id, WORKER, None)
        self._held.close()

    def trial_folder(self, number: int) -> RunFolder:
        """Where a trial's history, logs and (while it runs) checkpoints are."""
        return RunFolder(self.folder.trials / f"{number:04d}")

    def _take(self, number: int, worker: dict[str, Any] | None) -> bool:
        """Whether the trial is nobody's; it is ours then."""
        elsewhere = worker is not None and worker["host"] != socket.gethostname()
        # A file system may not tell other machines of its locks: they have time to be heard.
        if elsewhere and time.time() - worker["heard"] < self.config.lease_seconds:  # type: ignore[index]
            return False
        try:
            self._held.enter_context(self.trial_folder(number).locked())
        except Busy:
            return False
        return True

    def _me(self) -> dict[str, Any]:
        self._heard = time.monotonic()
        return {"host": socket.gethostname(), "process": os.getpid(), "heard": round(time.time())}

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One worker at a time; the system frees the lock of one that dies."""
        with wait_for_lock(self.folder.search / "claim.lock"):
            yield


def _same_process(worker: dict[str, Any]) -> bool:
    return worker.get("host") == socket.gethostname() and worker.get("process") == os.getpid()


def _storage(folder: RunFolder, url: str | None) -> BaseStorage:
    folder.search.mkdir(parents=True, exist_ok=True)
    if url is None:
        return open_journal(folder.journal)
    try:
        return optuna.storages.get_storage(url)
    except Exception as error:  # SQLAlchemy's and its drivers' errors have no common class
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"search.storage: {url} cannot be opened: {line}") from error


def open_journal(path: Path) -> JournalStorage:
    """The journal at `path`, without a last line that a full disk or a crash cut short.

    Its lock is a symbolic link, which works on network file systems of any age.
    """
    lock = JournalFileSymlinkLock(str(path))
    backend = JournalFileBackend(str(path), lock_obj=lock)
    lock.acquire()
    try:
        content = path.read_bytes()
        if content and not content.endswith(b"\n"):
            os.truncate(path, content.rfind(b"\n") + 1)
    finally:
        lock.release()
    return JournalStorage(backend)
