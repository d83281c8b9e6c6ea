"""The end of a multirun: a table of its runs, best first, and one picture of their curves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.text import Text

from dml.core.metric_names import metric_label
from dml.results.list_tables import (
    Column,
    best_table,
    epoch_of,
    fit_columns,
    format_table,
    name_column,
    percent,
    seed_column,
)
from dml.results.option_columns import common_names, option_columns
from dml.results.run_curves import draw_curves, read_curves
from dml.results.run_groups_by_seed import rank_groups
from dml.results.run_list import ListedRun, State, is_run, read_run

ON_TEST = " on test"


def summarize_sweep(folders: Iterable[Path], outputs: Path, width: int) -> list[Text]:
    """Returns the table of the finished runs of a multirun, and draws their curves.

    Runs with several seeds are followed by the means over seeds.

    Args:
        folders: of the runs; those without a finished run are left out.
        outputs: parent of the run folders.
        width: characters of the terminal.

    Returns:
        Texts to print; none for fewer than two finished runs.
    """
    runs = [read_run(path) for path in dict.fromkeys(folders) if is_run(path)]
    runs = [run for run in runs if run.state == State.FINISHED]
    if len(runs) < 2:
        return []
    runs.sort(key=lambda run: (run.labels["data"], run.labels["protocol"], -(run.score or 0.0)))
    shown = [_sweep_table(runs, width)]
    selected = ", ".join(sorted({run.selected_by for run in runs}))
    shown.append(Text(f"percent, untrained → best epoch by {selected}", "dim"))
    groups = rank_groups(runs)
    if len(groups) < len(runs):
        shown += [Text(), *best_table(groups, width)]
    if path := _draw(runs, outputs):
        shown.append(Text(f"curves      {path}"))
    if all(str(run.folder) not in shown[0].plain for run in runs):
        shown.append(Text(f"run folders {_common_folder(runs)}"))
    return shown


def _sweep_table(runs: Sequence[ListedRun], width: int) -> Text:
    """Returns the table; scores of mixed data or protocols are sorted within those."""
    after = [
        *seed_column(runs),
        *_score_columns(runs),
        Column("best epoch", [epoch_of(run) for run in runs], 2, True),
        Column("id", [run.id for run in runs]),
        Column("run folder", [str(run.folder) for run in runs], 9),
    ]
    columns = fit_columns(name_column(runs), option_columns(runs), after, width)
    return format_table(columns, width, f"{len(runs)} runs, best first: {common_names(runs)}")


def _score_columns(runs: Sequence[ListedRun]) -> list[Column]:
    """Returns the score before and after training; the selecting one too if it is another."""
    selected = {run.selected_by for run in runs}
    metric = runs[0].metric if len(selected) == 1 else "map_at_r"
    on_test = all(one.endswith(ON_TEST) for one in selected)
    cells = [
        f"{percent(run.untrained.get(metric))} → {percent(run.scores.get(metric))}" for run in runs
    ]
    columns = [Column(f"{'' if on_test else 'test '}{metric_label(metric)}", cells, 0, True)]
    if not on_test or len(selected) > 1:
        title = f"validation {metric_label(metric)}" if len(selected) == 1 else "selected"
        columns.insert(0, Column(title, [percent(run.score) for run in runs], 1, True))
    return columns


def _draw(runs: Sequence[ListedRun], outputs: Path) -> Path | None:
    """Draws the curves of runs that were selected by the same score; returns the file."""
    same = [run for run in runs if run.selected_by == runs[0].selected_by]
    curves = read_curves(same)
    if not curves:
        return None
    name = "-".join(option_columns(runs))[:40] or "seed"
    ids = hashlib.sha256(" ".join(sorted(run.id for run in runs)).encode()).hexdigest()[:8]
    path = outputs / "sweeps" / f"{name}-{ids}" / "curves.png"
    draw_curves(curves, same[0].selected_by, common_names(same), path)
    return path


def _common_folder(runs: Sequence[ListedRun]) -> str:
    """Returns a pattern of the runs' folders, with `<id>` at its end."""
    parents = {run.folder.parent for run in runs}
    home = str(next(iter(parents))) if len(parents) == 1 else f"{runs[0].folder.parents[1]}/*"
    return f"{home}/*-<id>"
