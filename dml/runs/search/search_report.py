"""The trials of a search as a table and as figures."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import optuna
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from dml.core.atomic_io import write_text
from dml.runs.figures.drawing import BLUE, GREY, ORANGE, save, tidy
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
    _draw_history(complete, folder.figures / "search_history.png")
    _draw_slices(complete, space, folder.figures / "search_slices.png")
    shares = compute_importances(complete, space)
    if shares:
        _draw_importances(shares, folder.figures / "search_importances.png")


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


def compute_importances(
    complete: Sequence[FrozenTrial], space: dict[str, BaseDistribution]
) -> dict[str, float]:
    """Returns each option's share in the variation of the score (fANOVA); empty for few trials."""
    if len(complete) < 4 or len({trial.value for trial in complete}) < 2:
        return {}
    study = optuna.create_study(direction="maximize")
    study.add_trials(complete)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: shares[name] for name in space if name in shares}


def _draw_history(complete: Sequence[FrozenTrial], path: Path) -> None:
    numbers = [trial.number for trial in complete]
    values = 100 * np.array([trial.value for trial in complete], dtype=float)
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    axis.plot(numbers, values, "o", color=BLUE, ms=4, label="trial")
    axis.plot(numbers, np.maximum.accumulate(values), color=ORANGE, lw=1.6, label="best so far")
    axis.set_xlabel("trial")
    axis.set_ylabel("validation, mean of folds, percent")
    axis.legend(frameon=False, fontsize=9)
    _save(figure, path)


def _draw_slices(
    complete: Sequence[FrozenTrial], space: dict[str, BaseDistribution], path: Path
) -> None:
    """Draws the score against each option; early trials are pale, late ones dark."""
    figure, axes = plt.subplots(
        1,
        len(space),
        figsize=(3 * len(space) + 1, 3.2),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    values = [100 * (trial.value or 0.0) for trial in complete]
    for axis, (name, where) in zip(axes[0], space.items(), strict=True):
        at = [trial.params[name] for trial in complete]
        shown = at if all(isinstance(x, int | float) for x in at) else [str(x) for x in at]
        axis.scatter(shown, values, c=[t.number for t in complete], cmap="Blues", vmin=-10, s=18)
        if getattr(where, "log", False):
            axis.set_xscale("log")
        axis.set_xlabel(name)
    axes[0, 0].set_ylabel("validation, percent")
    _save(figure, path)


def _draw_importances(shares: dict[str, float], path: Path) -> None:
    names = sorted(shares, key=lambda name: shares[name])
    figure, axis = plt.subplots(figsize=(6, 0.4 * len(names) + 1.2), layout="constrained")
    axis.barh(names, [100 * shares[name] for name in names], color=BLUE)
    axis.axvline(0, color=GREY, lw=0.8)
    axis.set_xlabel("percent of the score's variation (fANOVA)")
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    for axis in figure.axes:
        tidy(axis)
    save(figure, path)
