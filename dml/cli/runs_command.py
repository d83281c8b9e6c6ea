"""Command that lists run folders: `scripts/runs.py`, `dml-runs`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dml.core.errors import UserError
from dml.core.installation import shell_command

DESCRIPTION = """\
Lists run folders, the newest first: {command}

Prints state (finished, unfinished or damaged), mean MAP@R on the test images in percent, time since
the last change, and path. An unfinished run continues with `{train} resume=<path>`.
"""


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 on a mistake in the command."""
    parser = argparse.ArgumentParser(
        description=DESCRIPTION.format(command=shell_command("runs"), train=shell_command("train")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "runs", type=Path, nargs="?", default=Path("outputs"), help="folder (default: outputs)"
    )
    options = parser.parse_args(argv)
    from dml.reporting.run_list import format_age, list_runs  # late: --help need not load torch

    try:
        runs = list_runs(options.runs)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for run in runs:
        score = "-" if run.score is None else f"{100 * run.score:.2f}"
        problem = f"  ({run.problem})" if run.problem else ""
        print(f"{run.state:10s}  {score:>6s}  {format_age(run.age):>6s}  {run.folder}{problem}")
    if not runs:
        print(f"no runs in {options.runs}; {shell_command('train')} makes one")
    return 0
