"""The study that all processes of a search share: its trials and their results.

A trial belongs to the process that holds the lock of its folder, which the system frees when the
process ends. Another lock guards the numbering, so that no number is lost or used twice: the trial
of a process that died keeps its number and its parameters, and continues from its checkpoints.
"""

from __future__ import annotations

import shutil
import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from omegaconf import OmegaConf
from optuna.importance import FanovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState, create_trial
from optuna.visualization import matplotlib as pictures

from dml.config.schema import SearchConfig
from dml.core.atomic_io import write_text
from dml.core.counts import count_of
from dml.core.csv_cells import write_csv
from dml.core.errors import UserError
from dml.core.fault_injection import fault_point
from dml.core.installation import shell_command
from dml.core.locks import Busy, wait_for_lock
from dml.runs.console import print_line
from dml.runs.drawing_guard import attempt
from dml.runs.figures.drawing import plt, save
from dml.runs.folder.run_folder import RunFolder
from dml.runs.search.proposals import Params, Space, check_params, propose
from dml.runs.search.storage import (
    StorageError,
    open_storage,
    translate_storage_errors,
    write_back,
)

REASON = "reason"  # attribute of a trial that failed


class Study:
    """The shared study of a run.

    Attributes:
        optuna_study: the study as an object of Optuna.
        storage: Optuna's storage of the trials.
        first: values of the first trial, used instead of a proposal.

    Args:
        folder: of the run; trials have folders in it.
        config: the node `search`.
        space: the searched options.
        seed: of the proposals.
    """

    def __init__(self, folder: RunFolder, config: SearchConfig, space: Space, seed: int) -> None:
        self.folder, self.config, self.space, self.seed = folder, config, space, seed
        self.first: Params = {}
        self._known: list[FrozenTrial] = []  # by the last look
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._locks = ExitStack()
        with self._lock_numbering():
            self.storage = open_storage(folder, config.storage)
            # With the id of the run: a database may hold the study of an overwritten run, or of a
            # run with the same config elsewhere.
            self._name = "/".join((*folder.path.parts[-3:], folder.run_id()))
            with self._translate_errors():
                self.optuna_study = optuna.create_study(
                    storage=self.storage,
                    study_name=self._name,
                    direction="maximize",
                    load_if_exists=True,
                )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turns errors of the storage into one line; a journal that is gone is written back."""
        try:
            with translate_storage_errors(self.folder, self.config.storage):
                yield
        except StorageError:
            if self.config.storage is None:
                write_back(self.folder.journal, self._name, self._known)
            raise

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials, by number."""
        with self._translate_errors():
            self._known = self.optuna_study.trials
        return self._known

    def stored(self, trial: FrozenTrial) -> FrozenTrial:
        """Returns the present state of a trial."""
        with self._translate_errors():
            return self.storage.get_trial(self._key(trial))

    def complete_trials(self) -> list[FrozenTrial]:
        """Returns the complete trials, by number."""
        with self._translate_errors():
            return self.optuna_study.get_trials(states=[TrialState.COMPLETE])

    def find_equal(self, trial: FrozenTrial) -> FrozenTrial | None:
        """Returns an earlier complete trial with the same parameters; None if there is none."""
        for other in self.complete_trials():
            if other.number < trial.number and other.params == trial.params:
                return other
        return None

    def best_trial(self) -> FrozenTrial | None:
        """Returns the first complete trial with the highest score; None if no trial is complete."""
        best = max(self.complete_trials(), key=lambda trial: trial.value or 0.0, default=None)
        if best is not None:
            self._check(best)
        return best

    def _check(self, trial: FrozenTrial) -> None:
        """Raises UserError if a stored trial sets what this search does not."""
        check_params(trial.params, self.space, str(self.config.storage or self.folder.journal))

    def has_open_trials(self) -> bool:
        """Returns True if trials are missing or unfinished."""
        finished = [trial.state.is_finished() for trial in self.trials]
        return len(finished) < self.config.trials or not all(finished)

    def claim_trial(self) -> FrozenTrial | None:
        """Returns an unfinished trial without a process, or a new one; None if there is none."""
        with self._lock_numbering():
            trials, c = self.trials, self.config
            for trial in trials:
                if trial.state.is_finished() or not self._try_lock_trial(trial.number):
                    continue
                # Its process may have finished it between the two looks.
                current = self.stored(trial)
                if not current.state.is_finished():
                    self._check(current)
                    return current
                self.release()
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
            with self._translate_errors():
                trial_id = self.storage.create_new_trial(self._study_key(), template)
                fault_point("after_claim")
                return self.storage.get_trial(trial_id)

    def claims(self) -> list[Path]:
        """Returns the locks of the unfinished trials, which processes hold."""
        trials = [trial for trial in self.trials if not trial.state.is_finished()]
        return [self.trial_folder(trial.number).lock for trial in trials]

    def report_score(self, trial: FrozenTrial, fold: int, value: float) -> None:
        """Stores the mean validation score of the folds so far."""
        with self._translate_errors():
            self.storage.set_trial_intermediate_value(self._key(trial), fold, value)

    def finish(
        self, trial: FrozenTrial, state: TrialState, value: float | None = None, reason: str = ""
    ) -> None:
        """Stores the result of a claimed trial, and releases it."""
        values = None if value is None else [value]
        with self._translate_errors():
            if reason:
                self.storage.set_trial_user_attr(self._key(trial), REASON, reason)
            self.storage.set_trial_state_values(self._key(trial), state, values)
        self.release()

    def release(self) -> None:
        """Releases the claimed trial; the next process continues it if it is unfinished."""
        self._locks.close()

    def trial_folder(self, number: int) -> RunFolder:
        """The folder of a trial: history, logs and, while it is trained, checkpoints."""
        return RunFolder(self.folder.trials / f"{number:04d}")

    def delete_checkpoints(self, number: int) -> None:
        """Deletes the checkpoints of a trial."""
        shutil.rmtree(self.trial_folder(number).path / "checkpoints", ignore_errors=True)

    def report(self) -> dict[str, Any]:
        """Writes `best.yaml`, `search/trials.csv` and figures; returns the summary of the search.

        Returns:
            The part `search` of the summary; `params`: dotted options and values of the best trial.

        Raises:
            UserError: no trial was completed.
        """
        trials, best = self.trials, self.best_trial()
        for trial in trials:  # a process may have died before it deleted checkpoints
            self.delete_checkpoints(trial.number)
        if best is None:
            reasons = [trial.user_attrs.get(REASON, "pruned") for trial in trials]
            raise UserError(
                f"search: none of {count_of(len(trials), 'trial')} was completed; most frequent "
                f"reason: {statistics.mode(reasons)}"
            )
        distinct: list[Params] = []
        for trial in trials:
            if trial.params not in distinct:
                distinct.append(trial.params)
        if len(distinct) < len(trials):
            points = count_of(len(distinct), "different point")
            print_line(
                f"note: search: {len(trials)} trials tried {points}; equal ones were not trained "
                f"again"
            )
        of_trials = count_of(len(trials), "trial")
        header = f"# Best of {of_trials}: number {best.number}, validation {best.value}\n"
        header += f"# {shell_command('train')} … params={self.folder.best}\n"
        write_text(
            self.folder.best, header + OmegaConf.to_yaml(OmegaConf.create(dict(best.params)))
        )
        columns = ("number", "state", "value", "params", "user_attrs")
        table = self.optuna_study.trials_dataframe(columns)
        table.columns = table.columns.str.replace("^(params|user_attrs)_", "", regex=True)
        table = table.reindex(columns=["number", "state", "value", *self.space, REASON])
        table["state"] = table["state"].str.lower()
        write_text(self.folder.search / "trials.csv", write_csv(table))
        self._draw()
        count = Counter(trial.state for trial in trials)
        return {
            "trials": len(trials),
            "complete": count[TrialState.COMPLETE],
            "pruned": count[TrialState.PRUNED],
            "failed": count[TrialState.FAIL],
            "best_trial": best.number,
            "best_value": best.value,
            "params": best.params,
        }

    def _draw(self) -> None:
        """Draws history, slices, contour (of two options) and importances of complete trials.

        One that Optuna cannot draw, such as slices over lists, is left out with a note.
        """
        study, options = self.optuna_study, [*self.space]
        label: Any = {"target_name": "score on validation images"}
        figures: dict[str, Callable[[], Any]] = {
            "history": lambda: pictures.plot_optimization_history(study, **label),
            "slices": lambda: pictures.plot_slice(study, options, **label),
        }
        if len(options) == 2:
            figures["contour"] = lambda: pictures.plot_contour(study, options, **label)
        scores = [trial.value for trial in self.complete_trials()]
        if len(scores) > 3 and len(set(scores)) > 1:
            evaluator = FanovaImportanceEvaluator(seed=0)
            figures["importances"] = lambda: pictures.plot_param_importances(
                study, evaluator, **label
            )
        for kind, draw in figures.items():
            attempt(f"search_{kind}.png", partial(self._draw_figure, kind, draw))

    def _draw_figure(self, kind: str, draw: Callable[[], Any]) -> None:
        """Writes a figure of Optuna."""
        with warnings.catch_warnings(), plt.rc_context():  # Optuna changes the style
            warnings.simplefilter("ignore")  # its own are marked as experimental
            figure = np.atleast_1d(draw()).flat[0].figure  # of an axis, or of an array of them
            # "constrained" fails for a single plot, "tight" puts the color bar onto several.
            single = len(self.space) == 1 or kind == "contour"
            if kind == "history":  # Optuna's legend takes half of the width
                figure.axes[0].legend(loc="lower right")
            figure.set_layout_engine("tight" if single else "constrained")
            save(figure, self.folder.figures / f"search_{kind}.png")

    def _key(self, trial: FrozenTrial) -> int:
        """Returns the key of a trial in the storage, which may hold other studies."""
        study = self._study_key()
        return self.storage.get_trial_id_from_study_id_trial_number(study, trial.number)

    def _study_key(self) -> int:
        return self.storage.get_study_id_from_name(self.optuna_study.study_name)

    def _try_lock_trial(self, number: int) -> bool:
        """Locks the folder of a trial unless another worker has it; returns whether it did."""
        with suppress(Busy):
            self._lock_trial(number)
            return True
        return False

    def _lock_trial(self, number: int) -> None:
        """Locks the folder of a trial; Busy if another worker has it."""
        self._locks.enter_context(self.trial_folder(number).locked())

    def _lock_numbering(self) -> AbstractContextManager[None]:
        """Admits one process at a time; the system frees the lock of a process that dies."""
        return wait_for_lock(self.folder.search / "claim.lock")
