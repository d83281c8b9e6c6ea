"""The trials of a search as a table and as figures."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from matplotlib import pyplot as plt
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState
from optuna.visualization import matplotlib as pictures

from dml.core.atomic_io import write_text
from dml.runs.figures.drawing import save
from dml.runs.folder.run_folder import RunFolder


def write_search_report(
    trials: Sequence[FrozenTrial], space: dict[str, BaseDistribution], folder: RunFolder
) -> None:
    """Writes `search/trials.csv`, and history, importances and slices into `figures/`.

    Args:
        trials: of a study, by number.
        space: the searched options.
        folder: of the run.
    """
    write_text(folder.search / "trials.csv", format_table(trials, space))
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    if not complete:
        return
    study = optuna.create_study(direction="maximize")
    study.add_trials(complete)
    with warnings.catch_warnings(), plt.rc_context():  # optuna changes the style of all pictures
        warnings.simplefilter("ignore")  # its own are marked as experimental
        _save(pictures.plot_optimization_history(study), folder.figures / "search_history.png")
        _save(pictures.plot_slice(study, [*space]), folder.figures / "search_slices.png")
        if len(complete) > 3 and len({trial.value for trial in complete}) > 1:
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
            axes = pictures.plot_param_importances(study, evaluator)
            _save(axes, folder.figures / "search_importances.png")


def format_table(trials: Sequence[FrozenTrial], space: dict[str, BaseDistribution]) -> str:
    """Returns a row per trial: number, state, validation score, parameters, reason of a failure."""
    text = io.StringIO()
    columns = ["number", "state", "value", *space, "reason"]
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for trial in trials:
        row = {"number": trial.number, "state": trial.state.name.lower(), **trial.params}
        value = trial.value if trial.state == TrialState.COMPLETE else None
        reason = trial.user_attrs.get("reason", "")
        writer.writerow({**row, "value": "" if value is None else repr(value), "reason": reason})
    return text.getvalue()


def _save(axes: Any, path: Path) -> None:
    """Saves the figure of optuna's axes, one or an array of them."""
    axis = np.atleast_1d(axes).flat[0]
    axis.figure.set_layout_engine("constrained")
    save(axis.figure, path)
