"""Ours beside the printed numbers: python scripts/report.py mft_table1

Takes names of experiments, `all`, or `single` for runs of no experiment (python train.py -m …).
Prints tables; writes HTML (one page, pictures inside), Markdown and CSV into outputs/reports.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dml.core.errors import UserError


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 written, 1 not, 2 the command is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="+", metavar="experiment", help="id | all | single")
    parser.add_argument("--runs", type=Path, default=Path("outputs"), help="where run folders are")
    parser.add_argument("--out", type=Path, help="where to write (default: <runs>/reports)")
    parser.add_argument("--no-figures", action="store_true", help="tables alone, which is faster")
    options = parser.parse_args(argv)
    from dml.reporting.report_files import report  # late: --help need not wait for torch

    out = options.out or options.runs / "reports"
    try:
        report(options.experiments, options.runs, out, figures=not options.no_figures)
    except UserError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
