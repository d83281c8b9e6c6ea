"""Command that lists, compares and removes runs: `scripts/runs.py`, `dml-runs`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dml.cli.error_lines import report_errors
from dml.cli.parser import make_parser
from dml.core.errors import UserError, nearest
from dml.core.installation import shell_command

if TYPE_CHECKING:  # otherwise imported late: --help need not load rich
    from rich.console import Console
    from rich.text import Text

    from dml.results.run_list import Removal

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
    options = _parser().parse_intermixed_args(argv)
    words = list(options.words)
    action = words.pop(0) if words[:1] and words[0] in ACTIONS else "list"
    return _run(action, words, options)


def _parser() -> argparse.ArgumentParser:
    parser = make_parser(
        DESCRIPTION.format(runs=shell_command("runs"), train=shell_command("train"))
    )
    parser.add_argument(
        "words", nargs="*", metavar="word", help="best | compare | rm | clean, conditions, ids"
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("outputs"), help="folder of runs (default: outputs)"
    )
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--csv", action="store_true", help="print CSV, all scores and paths")
    kinds.add_argument("--json", action="store_true", help="print JSON, all options too")
    parser.add_argument("--yes", action="store_true", help="rm and clean: do not ask")
    return parser


def _run(action: str, words: list[str], options: argparse.Namespace) -> int:
    from dml.results import run_list
    from dml.results.frame import load_frame, one_per_run
    from dml.results.run_list import plan_cleaning, plan_removal

    root = options.runs
    if action in ("list", "best", "clean"):
        _check_conditions(words)
    frame = load_frame(root)
    runs = one_per_run(frame)
    if action in ("compare", "rm"):
        if action == "compare" and len(words) != 2:
            raise UserError(f"compare: takes two runs; type {shell_command('runs')} compare A B")
        if not words:
            raise UserError(f"rm: takes runs; type {shell_command('runs')} rm <id> …")
        first, *others = (run_list.find_run(word, runs) for word in words)
        if action == "rm":
            return _remove(plan_removal(run.run for run in (first, *others)), options.yes)
        folder, width = root / "comparisons", _console().width
        _print(run_list.compare_runs(first, others[0], frame, folder, width))
        return 0
    chosen = run_list.select_runs(runs, words)
    if action == "clean":
        return _remove(plan_cleaning(chosen.run), options.yes)
    if action == "best":
        groups = run_list.rank_runs(frame[frame.folder.isin(chosen.folder)])
        chosen = chosen.loc[[folder for group in groups for folder in group.folder.unique()]]
    if options.csv or options.json:
        print((run_list.to_csv if options.csv else run_list.to_json)(chosen), end="")
    elif chosen.empty:
        print(_explain_none(len(runs), words, root))
    elif action == "best":
        _print(run_list.best_table(groups, _console().width))
    else:
        _print(run_list.run_table(chosen, _console().width))
    return 0


def _check_conditions(words: Sequence[str]) -> None:
    """Raises UserError for a word that is no condition."""
    for word in words:
        if "=" not in word:
            hint = nearest(word, ACTIONS) or f"; one of {', '.join(ACTIONS)}"
            raise UserError(f"{word}: neither a condition such as loss=ms nor an action{hint}")


def _console() -> Console:
    """Returns the console for tables, with colors only on a terminal."""
    from rich.console import Console

    return Console(highlight=False)


def _print(shown: Iterable[Text]) -> None:
    console = _console()
    for text in shown:
        console.print(text, soft_wrap=True)


def _explain_none(count: int, words: Sequence[str], root: Path) -> str:
    if not count:
        return f"no runs in {root}; {shell_command('train')} creates one"
    return f"none of {count} runs meets {' '.join(words)}" if words else "no finished runs"


def _remove(removals: Sequence[Removal], sure: bool) -> int:
    """Lists the files to remove, asks, and removes them."""
    from rich.filesize import decimal

    from dml.results.run_list import remove

    if not removals:
        print("nothing to remove")
        return 0
    for removal in removals:
        print(f"{decimal(removal.size):>7s}  {removal.reason:27s}  {removal.path}")
    total = decimal(sum(removal.size for removal in removals))
    if not sure:
        if not sys.stdin.isatty():
            raise UserError(f"{total} would be removed; --yes removes it without asking")
        if input(f"remove {total}? [y/N] ").strip().lower() not in ("y", "yes"):
            print("nothing was removed")
            return 0
    try:
        count = sum(1 for _ in remove(removals))
    except OSError as error:
        raise UserError(f"cannot remove {error.filename}: {error.strerror}") from error
    print(f"removed {count} of {len(removals)}: {total}")
    return 0
