"""What experiments cost and how far they are: python scripts/plan.py mft_table1

    python scripts/plan.py all                                   every experiment, a line each
    python scripts/plan.py mft_table1                            every run of one, with its command
    python scripts/plan.py mft_table1 data=cub search.trials=10  a part of it, on a smaller budget
    python scripts/plan.py all --readme                          the table of README.md, anew

Trainings count the folds and trials of searches. GPU hours are estimated as dml/plan.py says;
finished runs are counted by their clock.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from rich.table import Table

from dml.core.errors import UserError
from dml.reporting import cost as plan
from dml.reporting.catalog import names
from dml.runs.console import console


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 shown, 1 not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", help="an id, or all")
    parser.add_argument("overrides", nargs="*", help="options of train.py")
    parser.add_argument("--runs", default="outputs", help="folder of runs (default: outputs)")
    parser.add_argument("--readme", action="store_true", help="write the table into README.md")
    options = parser.parse_intermixed_args(argv)
    wanted = names() if options.experiment == "all" else [options.experiment]
    try:
        lines = [plan.line(one, options.overrides, options.runs) for one in wanted]
    except (UserError, HydraException, OmegaConfBaseException) as error:
        print(f"error: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1
    if options.readme:
        path = Path(__file__).resolve().parent.parent / "README.md"
        text = plan.with_table(path.read_text(encoding="utf-8"), {x.id: x.state for x in lines})
        path.write_text(text, encoding="utf-8")
        return 0
    if options.experiment != "all":
        _show_cells(lines[0])
    console.print(_table(lines))
    return 0


def _show_cells(line: plan.Line) -> None:
    for cell in line.cells:
        mark = f"  [reduced: {' '.join(plan.reduced(cell))}]" if plan.reduced(cell) else ""
        print(f"{plan.status(cell):8s} {cell.trainings:4d} trainings  {cell.command}{mark}")


def _table(lines: list[plan.Line]) -> Table:
    table = Table()
    for name in ("experiment", "cells", "done", "trainings", "GPU h (estimated)", "h (measured)"):
        table.add_column(name, justify="left" if name == "experiment" else "right")
    for x in lines:
        row = (len(x.cells), x.done, x.trainings, f"{x.estimated:,.1f}", f"{x.measured:,.1f}")
        table.add_row(x.id, *map(str, row))
    if len(lines) > 1:
        sums = (sum(len(x.cells) for x in lines), sum(x.done for x in lines))
        more = (sum(x.trainings for x in lines), f"{sum(x.estimated for x in lines):,.0f}")
        table.add_section()
        table.add_row("all", *map(str, (*sums, *more, f"{sum(x.measured for x in lines):,.1f}")))
    return table


if __name__ == "__main__":
    sys.exit(main())
