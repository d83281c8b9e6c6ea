"""The study that all workers of a search share: its trials and their results.

A trial belongs to the worker that holds the lock of its folder, which the system frees when the
worker dies. Another lock guards the numbering, so that no number is lost or used twice: the trial
of a dead worker keeps its number and its parameters, and continues from its checkpoints.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from dml.config.schema import SearchConfig
from dml.core.fault_injection import fault_point
from dml.core.locks import Busy, wait_for_lock
from dml.runs.folder.run_folder import RunFolder
from dml.runs.search.proposals import Params, Space, propose

REASON = "reason"  # attribute: of a failure


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
        with self._lock_numbering():
            self.storage = open_journal(folder.journal)
            name = "/".join(folder.path.parts[-3:])
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
                if not trial.state.is_finished():
                    with suppress(Busy):
                        self._lock_trial(trial.number)
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
                state=TrialState.RUNNING, params=params, distributions=self.space
            )
            trial_id = self.storage.create_new_trial(self.optuna_study._study_id, template)
            fault_point("after_claim")
            return self.storage.get_trial(trial_id)

    def report_score(self, trial: FrozenTrial, fold: int, value: float) -> None:
        """Stores the mean validation score of the folds so far."""
        self.storage.set_trial_intermediate_value(trial._trial_id, fold, value)

    def finish(
        self, trial: FrozenTrial, state: TrialState, value: float | None = None, reason: str = ""
    ) -> None:
        """Stores the result of a trial."""
        with self._lock_numbering():
            if reason:
                self.storage.set_trial_user_attr(trial._trial_id, REASON, reason)
            values = None if value is None else [value]
            self.storage.set_trial_state_values(trial._trial_id, state, values)
        self.release()

    def release(self) -> None:
        """Frees the trial of this worker; the next worker continues an unfinished one."""
        self._locks.close()

    def trial_folder(self, number: int) -> RunFolder:
        """The folder of a trial: history, logs and, while it is trained, checkpoints."""
        return RunFolder(self.folder.trials / f"{number:04d}")

    def _lock_trial(self, number: int) -> None:
        """Locks the folder of a trial; Busy if another worker has it."""
        self._locks.enter_context(self.trial_folder(number).locked())

    def _lock_numbering(self) -> AbstractContextManager[bool]:
        """Admits one worker at a time; the system frees the lock of a worker that dies."""
        return wait_for_lock(self.folder.search / "claim.lock")


def open_journal(path: Path) -> JournalStorage:
    """Opens the journal at `path`, without a last line that a full disk has cut short."""
    # The system's lock is freed at once when its holder is killed; Optuna's own blocks the others
    # for half a minute.
    lock: Any = FileLock(path.with_suffix(".lock"), fallback_to_soft=False)
    backend = JournalFileBackend(str(path), lock_obj=lock)
    with lock:
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
    return JournalStorage(backend)
