"""Command that lists, compares and removes runs: `scripts/runs.py`, `dml-runs`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dml.cli.error_lines import report_errors
from dml.cli.parser import make_parser
from dml.core.errors import UserError, nearest
from dml.core.installation import shell_command

if TYPE_CHECKING:  # otherwise imported late: --help need not load it
    import pandas as pd

ACTIONS = ("list", "best", "compare", "rm", "clean")
DESCRIPTION = """\
Lists the runs below outputs/, the newest first.

  {runs}                         all runs
  {runs} loss=ms,mf* seed=0      runs that meet all conditions
  {runs} state=stopped lr=0.001  also by state and any option
  {runs} best data=cub           joins seeds; best first
  {runs} compare 1a2b 5e6f       options, scores, curves, test
  {runs} rm 1a2b                 removes run folders; asks first
  {runs} clean                   removes unused files; asks first

A run is given by its id, the end of its folder's name (the first characters
suffice if no other id begins with them), by its name=, or by its folder.
States: finished, running, searching, stopped (the same command continues it, as
does {train} resume=<folder>), failed, empty, damaged.
"""


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 on a mistake in the command, 130 interrupted."""
    parser = make_parser(
        DESCRIPTION.format(runs=shell_command("runs"), train=shell_command("train"))
    )
    add = parser.add_argument
    add("words", nargs="*", metavar="word", help="best | compare | rm | clean, conditions, ids")
    add("--runs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)")
    add("--json", action="store_true", help="print JSON: all scores, options and paths")
    add("--yes", action="store_true", help="rm and clean: do not ask")
    options = parser.parse_intermixed_args(argv)
    words, root = list(options.words), options.runs
    action = words.pop(0) if words[:1] and words[0] in ACTIONS else "list"
    if action in ("list", "best", "clean"):
        for word in words:
            if "=" not in word:
                hint = nearest(word, ACTIONS) or f"; one of {', '.join(ACTIONS)}"
                raise UserError(f"{word}: neither a condition such as loss=ms nor an action{hint}")
    elif len(words) != 2 if action == "compare" else not words:
        raise UserError(f"{action}: takes {'two runs' if action == 'compare' else 'runs'}, by id")
    from rich.console import Console

    from dml.results import run_list
    from dml.results.frame import load_frame, one_per_run

    console = Console(highlight=False)  # colors only on a terminal
    frame = load_frame(root)
    runs = one_per_run(frame)
    if action in ("compare", "rm"):
        found = [run_list.find_run(word, runs) for word in words]
    else:
        chosen = run_list.select_runs(runs, words)
    if action in ("rm", "clean"):
        whole = action == "rm"
        affected = [run.run for run in found] if whole else chosen.run
        return _remove(run_list.plan_removal(affected, whole), options.yes)
    if action == "compare":
        folder = root / "comparisons"
        shown = run_list.compare_runs(found[0], found[1], frame, folder, console.width)
    elif action == "best":
        groups = run_list.rank_runs(frame[frame.folder.isin(chosen.folder)])
        chosen = chosen.loc[[folder for group in groups for folder in group.folder.unique()]]
        shown = run_list.best_table(groups, console.width) if groups else []
    else:
        shown = run_list.run_table(chosen, console.width) if len(chosen) else []
    if options.json:
        print(run_list.to_json(chosen))
    elif not shown and len(runs):
        print(f"none of {len(runs)} runs meets {' '.join(words) or 'state=finished'}")
    elif not shown:
        print(f"no runs in {root}; {shell_command('train')} creates one")
    for text in () if options.json else shown:
        console.print(text, soft_wrap=True)
    return 0


def _remove(removals: pd.DataFrame, sure: bool) -> int:
    """Lists the files to remove, asks, and removes them."""
    from rich.filesize import decimal

    from dml.results.run_list import remove

    if removals.empty:
        print("nothing to remove")
        return 0
    for removal in removals.itertuples():
        print(f"{decimal(removal.bytes):>7s}  {removal.reason:18s}  {removal.path}")
    total = decimal(removals.bytes.sum())
    if not sure:
        if not sys.stdin.isatty():
            raise UserError(f"{total} would be removed; --yes removes it without asking")
        if input(f"remove {total}? [y/N] ").strip().lower() not in ("y", "yes"):
            print("nothing was removed")
            return 0
    print(f"removed {len([*remove(removals)])} of {len(removals)}: {total}")
    return 0
