"""Cost and progress of experiments: python scripts/plan.py mft_table1

    python scripts/plan.py all                                   every experiment, a line each
    python scripts/plan.py mft_table1                            every run of one, with its command
    python scripts/plan.py mft_table1 data=cub search.trials=10  a part of it, on a smaller budget

Trainings include the folds and trials of searches. Estimated hours are those of one GPU, or of one
CPU core with device=cpu (the rule is in dml/results/cost.py); those of finished runs are measured,
and those that are left are estimated at their pace.
"""

from __future__ import annotations

import sys

import environment  # noqa: F401
import pandas as pd
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from dml.cli.error_lines import report_errors
from dml.cli.parser import make_parser
from dml.config.explain import explain
from dml.core.errors import ConfigError, first_line
from dml.results.catalog import experiment_ids
from dml.results.cost import hours_left, plan_frame
from dml.results.tables import Column, Table, terminal_table
from dml.runs.console import console

BUDGET = ("protocol.repeats", "protocol.epochs", "protocol.steps_per_epoch", "search.trials")
COLUMNS = (
    *("experiment", "cells", "done", "trainings", "GB on disk"),
    *("hours (estimated)", "measured", "left"),
)


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 on a mistake in the command."""
    parser = make_parser(__doc__)
    parser.add_argument("experiment", help="an id, or all")
    parser.add_argument("overrides", nargs="*", help="options of train.py")
    parser.add_argument("--runs", default="outputs", help="folder of runs (default: outputs)")
    options = parser.parse_intermixed_args(argv)
    ids = experiment_ids() if options.experiment == "all" else [options.experiment]
    try:
        plans = [plan_frame(one, options.overrides, options.runs) for one in ids]
    except (HydraException, OmegaConfBaseException) as error:
        chosen = [] if options.experiment == "all" else [f"experiment={options.experiment}"]
        raise ConfigError(
            explain([*chosen, *options.overrides], "train") or [first_line(error)]
        ) from error
    if options.experiment != "all":
        for cell in plans[0].itertuples():
            reduced = [w for w in cell.overrides if w.partition("=")[0].lstrip("+") in BUDGET]
            note = f"  [reduced: {' '.join(reduced)}]" if reduced else ""
            print(f"{cell.status:8s} {cell.trainings:4d} trainings  {cell.command}{note}")
    columns = zip(*(_texts(id, plan) for id, plan in zip(ids, plans, strict=True)), strict=True)
    rows = [*columns]
    if len(plans) > 1:
        total = _texts("all", pd.concat(plans), sum(map(hours_left, plans)))
        rows = [(*column, text) for column, text in zip(rows, total, strict=True)]
    named = zip(COLUMNS, rows, strict=True)
    shown = [Column(name, texts, right=name != COLUMNS[0]) for name, texts in named]
    console.print(terminal_table(Table("", shown, below=int(len(plans) > 1)), console.width))
    return 0


def _texts(name: str, plan: pd.DataFrame, left: float | None = None) -> list[str]:
    """Returns the cells of a line of the table."""
    counts = (len(plan), (plan.status == "done").sum(), plan.trainings.sum())
    disk, estimated = (plan[name].sum(skipna=False) for name in ("gigabytes", "estimated"))
    costs = (disk, estimated, plan.measured.sum(), hours_left(plan) if left is None else left)
    return [name, *map(str, counts), *("unknown" if c != c else f"{c:,.1f}" for c in costs)]


if __name__ == "__main__":
    sys.exit(main())
