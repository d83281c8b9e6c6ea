"""Command that estimates the cost of experiments: `dml plan`."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dml.cli.parser import (
    Parser,
    complete_experiment,
    complete_override,
    parse_folder,
    refuse_outputs,
    set_completer,
)
from dml.cli.shared_options import add_current_folder
from dml.cli.word_order import check_order_of_plan
from dml.core.counts import verb_for
from dml.core.installation import shell_command
from dml.core.plain_text import print_plain

if TYPE_CHECKING:  # otherwise imported late: --help need not load it
    import pandas as pd

DESCRIPTION = """\
Cost and progress of experiments.

  {plan} all                                   every experiment, a line each
  {plan} mft_table1                            every run of one, with its command
  {plan} mft_table1 data=cub search.trials=10  a part of it, on a smaller budget

Training runs include the folds and trials of searches. Hours of finished runs are measured, and
those that are left are estimated at their pace. Estimated hours show only whether a table takes
hours or months: the number of images to train on over the images per second that a network is
assumed to train on one data-center GPU (A100 or newer, TF32, decoding fast enough), or on one CPU
core with device=cpu. Without TF32 a GPU is half as fast. An image of an evaluation costs a third of
one in training, and a run without training costs nothing else. Training that may stop early is
assumed to last for five times its patience. Methods that pass images through the network twice or
more count as often. The estimate is unknown for a network without a known speed, and for a dataset
whose reader does not say how many images it trains on.
"""
BUDGET = ("protocol.repeats", "protocol.epochs", "protocol.steps_per_epoch", "search.trials")
COLUMNS = (
    "experiment",
    "cells",
    "done",
    "training runs",
    "GB on disk",
    "hours (estimated)",
    "measured",
    "left",
)
DEVICES = {"gpu": "one data-center GPU (A100 or newer, with TF32)", "cpu": "one CPU core"}


def parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(DESCRIPTION.format(plan=shell_command("plan")), "plan")
    add = parser.add_argument
    set_completer(add("experiment", help="an id, or all"), complete_experiment)
    overrides = add("overrides", nargs="*", metavar="option=value", help="options of dml train")
    set_completer(overrides, complete_override)
    parser.add_argument(
        "--runs",
        type=parse_folder,
        default=Path("outputs"),
        help="folder of runs (default: outputs)",
    )
    return parser


def main(words: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    command = parser()
    options = command.parse(words)
    refuse_outputs([options.experiment, *options.overrides])
    check_order_of_plan(options.experiment)
    command.refuse_without_dashes(options.overrides)
    add_current_folder()  # a reader may say how many images it trains on
    from dml.config.schema import for_another_machine  # imported late: --help need not load it

    with for_another_machine():
        plans = _plan(options)
    if options.experiment != "all":
        _print_runs(plans[options.experiment], options.overrides)
    _print_table(plans)
    _print_cores(options.overrides)
    return 0


def _plan(options: Namespace) -> dict[str, pd.DataFrame]:
    """Returns the plan of each experiment by its id.

    Raises:
        ConfigError: wrong options, a line each.
    """
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from dml.config.command_line import refuse_empty, refuse_repeated
    from dml.config.explain import explain
    from dml.core.errors import ConfigError, first_line
    from dml.results.catalog import experiment_ids
    from dml.results.plan import plan_frame

    experiment = [f"experiment={options.experiment}"]
    refuse_repeated(experiment + options.overrides)
    refuse_empty(options.overrides)
    ids = [options.experiment]
    if options.experiment == "all":
        ids, experiment = experiment_ids(), []
    try:
        return {id: plan_frame(id, options.overrides, str(options.runs)) for id in ids}
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        problems = explain(experiment + options.overrides, "train")
        raise ConfigError(problems or [first_line(error)]) from error


def _print_cores(overrides: Sequence[str]) -> None:
    """Prints how runs on the CPU use several cores, of which the estimate counts one."""
    from dml.core.processor import available_cores

    cores = available_cores()
    if "device=cpu" not in overrides or cores == 1:
        return
    print_plain(
        f"note: {cores} cores are used best by {cores} runs at the same time in "
        f"a thread each, with OMP_NUM_THREADS=1: -m hydra/launcher=joblib "
        f"hydra.launcher.n_jobs={cores}, or protocol.workers={cores} for the models of a run"
    )


def _print_runs(plan: pd.DataFrame, overrides: Sequence[str]) -> None:
    """Prints the command of each run, with the budget that `overrides` change."""
    changed = {_option(word) for word in overrides} & set(BUDGET)
    for cell in plan.itertuples():
        reduced = [word for word in shlex.split(cell.overrides) if _option(word) in changed]
        note = f"  [reduced: {' '.join(reduced)}]" if reduced else ""
        if not cell.trainings:
            note = f"  [no training; embedding of the test images alone: {_time_text(cell)}]"
        runs = verb_for(cell.trainings, "run ", "runs")
        print_plain(f"{cell.status:8s} {cell.trainings:4d} training {runs}  {cell.command}{note}")


def _time_text(cell: Any) -> str:
    """Returns the estimated time of a run: `about 0:03:20`."""
    from dml.core.progress import format_seconds

    is_unknown = cell.estimated != cell.estimated  # NaN
    return "unknown time" if is_unknown else f"about {format_seconds(3600 * cell.estimated)}"


def _option(word: str) -> str:
    return word.partition("=")[0].lstrip("+")


def _print_table(plans: dict[str, pd.DataFrame]) -> None:
    """Prints a line for each experiment, and their sum if there are several."""
    import pandas as pd

    from dml.results.plan import hours_left
    from dml.results.tables import Column, Table, terminal_table
    from dml.runs.console import console

    rows = [_texts(id, plan, hours_left(plan)) for id, plan in plans.items()]
    if len(plans) > 1:
        left = sum(hours_left(plan) for plan in plans.values())
        rows.append(_texts("all", pd.concat(plans.values()), left))
    columns = []
    for name, texts in zip(COLUMNS, zip(*rows, strict=True), strict=True):
        columns.append(Column(name, texts, right=name != COLUMNS[0]))
    below = 1 if len(plans) > 1 else 0
    console.print(terminal_table(Table("", columns, below=below), console.width))
    devices = pd.concat(plans.values()).device.unique()
    print_plain(f"hours are estimated for {' or '.join(DEVICES[device] for device in devices)}")


def _texts(name: str, plan: pd.DataFrame, left: float) -> list[str]:
    """Returns the cells of a line of the table."""
    counts = (len(plan), (plan.status == "done").sum(), plan.trainings.sum())
    disk, estimated = (plan[name].sum(skipna=False) for name in ("gigabytes", "estimated"))
    costs = (disk, estimated, plan.measured.sum(), left)
    return [name, *map(str, counts), *map(_cost_text, costs)]


def _cost_text(cost: float) -> str:
    is_unknown = cost != cost  # NaN
    if is_unknown:
        return "unknown"
    return "< 0.1" if 0 < cost < 0.05 else f"{cost:,.1f}"
