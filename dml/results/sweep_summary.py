"""The runs of a multirun as a table, best first."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd
from rich.text import Text

from dml.core.counts import verb_for
from dml.core.text_columns import plain_text_columns
from dml.results.frame import make_runs, one_per_run, option_columns
from dml.results.nearest import find_nearest
from dml.results.run_curves import draw_curves
from dml.results.run_list import RANKED, best_table, describe_groups, rank_runs, run_table
from dml.runs.folder.stored_run import State, StoredRun, is_run, read_run


@plain_text_columns()
def summarize_sweep(folders: Iterable[Path], outputs: Path, width: int) -> list[Text]:
    """Returns the table of the finished runs of a multirun, and draws their curves.

    Configurations with several seeds are followed by their means.

    Args:
        folders: of the runs; those without a finished run are left out.
        outputs: parent of the run folders.
        width: characters of the terminal.

    Returns:
        Texts to print; of one finished run, the nearest published number.
    """
    stored = map(read_run, filter(is_run, dict.fromkeys(folders)))
    all_runs = make_runs([run for run in stored if run.state == State.FINISHED])
    if len(all_runs.stored) < 2:
        return list(_published_lines(all_runs.stored.values()))
    groups = rank_runs(all_runs)
    table = _sort_by_score(one_per_run(pd.concat([group.table for group in groups])))
    runs = all_runs.select(table)
    shown = run_table(runs, width, _describe_order(table))
    shown.append(Text(f"percent, at the best epoch by {', '.join(table.selected_by.unique())}"))
    shown += _rising_lines(table)
    if len(groups) < len(table):
        shown.append(Text())
        shown += best_table(groups, width)
    seen = pd.Series([run.has_seen_classes for run in runs.by_row], table.index)
    same = table[(table.selected_by == table.selected_by.iloc[0]) & (seen == seen.iloc[0])]
    ids = hashlib.sha256(" ".join(sorted(table.id)).encode()).hexdigest()[:8]
    varied = "-".join(option_columns(runs))
    name = re.sub(r"[^\w.-]", "_", varied[:40]).lstrip(".") or "seed"
    shown += draw_curves(runs.select(same), outputs / "sweeps" / f"{name}-{ids}" / "curves.png")
    shown.append(Text(f"run folders {outputs}/*/*/*-<id>"))
    return shown


def _rising_lines(runs: pd.DataFrame) -> Iterator[Text]:
    """Yields a line that counts the runs whose last epoch is their best, if there are any."""
    is_last = (runs.epoch >= runs.epochs) & (runs.epochs > 0)
    count = int(is_last.fillna(False).sum())
    if count:
        verb = verb_for(count, "is best at its last epoch", "are best at their last epoch")
        text = f"note: {count} of {len(runs)} runs {verb} and may still rise"
        yield Text(f"{text}: more epochs (protocol.epochs) may change the order")


def _sort_by_score(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of runs best first, within equal `RANKED`; those without a score last."""
    ascending = [True] * len(RANKED) + [False]
    return runs.sort_values([*RANKED, "score"], ascending=ascending, kind="stable")


def _describe_order(runs: pd.DataFrame) -> str:
    """Returns the order of `_sort_by_score` for the title of a table."""
    return f", best first{describe_groups(runs)}"


def _published_lines(runs: Iterable[StoredRun]) -> Iterator[Text]:
    """Yields the published number that is nearest to each run, if there is any."""
    for run in runs:
        number = find_nearest(run)
        if number is not None:
            yield Text(f"published   {number.hint}")
