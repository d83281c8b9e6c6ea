"""Cost and progress of experiments: python scripts/plan.py mft_table1

    python scripts/plan.py all                                   every experiment, a line each
    python scripts/plan.py mft_table1                            every run of one, with its command
    python scripts/plan.py mft_table1 data=cub search.trials=10  a part of it, on a smaller budget

Trainings include the folds and trials of searches. Estimated hours are those of one GPU, or of one
CPU core for claims_* (the rule is in dml/results/cost.py); those of finished runs are measured,
and those that are left are estimated at their pace.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import environment  # noqa: F401
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from rich.table import Table

from dml.config.explain import explain
from dml.core.errors import UserError, first_line
from dml.results.catalog import experiment_ids
from dml.results.cost import Progress, measure_progress, sum_hours
from dml.runs.console import console

BUDGET = ("protocol.repeats", "protocol.epochs", "protocol.steps_per_epoch", "search.trials")
COLUMNS = ("experiment", "cells", "done", "trainings", "hours (estimated)", "measured", "left")


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 on a mistake in the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", help="an id, or all")
    parser.add_argument("overrides", nargs="*", help="options of train.py")
    parser.add_argument("--runs", default="outputs", help="folder of runs (default: outputs)")
    options = parser.parse_intermixed_args(argv)
    typed = [word for word in options.overrides if word.startswith("outputs=")]
    runs = typed[-1].partition("=")[2] if typed else options.runs
    ids = experiment_ids() if options.experiment == "all" else [options.experiment]
    try:
        found = [measure_progress(one, options.overrides, runs) for one in ids]
    except (UserError, HydraException, OmegaConfBaseException) as error:
        chosen = [] if options.experiment == "all" else [f"experiment={options.experiment}"]
        unexplained = not isinstance(error, UserError)  # in words of Hydra
        problems = explain([*chosen, *options.overrides], "train") if unexplained else []
        for problem in problems or [first_line(error)]:
            print(f"error: {problem}", file=sys.stderr)
        return 1
    if options.experiment != "all":
        _print_cells(found[0])
    console.print(_table(found))
    return 0


def _print_cells(progress: Progress) -> None:
    for place, cell in enumerate(progress.cells):
        reduced = [word for word in cell.overrides if word.partition("=")[0].lstrip("+") in BUDGET]
        note = f"  [reduced: {' '.join(reduced)}]" if reduced else ""
        print(f"{progress.status(place):8s} {cell.trainings:4d} trainings  {cell.command}{note}")


def _table(found: list[Progress]) -> Table:
    table = Table()
    for name in COLUMNS:
        is_name = name == "experiment"
        table.add_column(name, justify="left" if is_name else "right", no_wrap=is_name)
    for x in found:
        counts = (len(x.cells), len(x.measured), x.trainings)
        _add_row(table, x.id, counts, (x.estimated, sum(x.measured.values()), x.left))
    if len(found) > 1:
        table.add_section()
        columns = zip(*((len(x.cells), len(x.measured), x.trainings) for x in found), strict=True)
        hours = zip(*((x.estimated, sum(x.measured.values()), x.left) for x in found), strict=True)
        _add_row(table, "all", list(map(sum, columns)), [sum_hours(list(some)) for some in hours])
    return table


def _add_row(table: Table, name: str, counts: Sequence[int], hours: Sequence[float | None]) -> None:
    shown = ["unknown" if one is None else f"{one:,.1f}" for one in hours]
    table.add_row(name, *map(str, counts), *shown)


if __name__ == "__main__":
    sys.exit(main())
