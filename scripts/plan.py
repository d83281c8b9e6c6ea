"""Cost and progress of experiments: python scripts/plan.py mft_table1

    python scripts/plan.py all                                   every experiment, a line each
    python scripts/plan.py mft_table1                            every run of one, with its command
    python scripts/plan.py mft_table1 data=cub search.trials=10  a part of it, on a smaller budget

Trainings include the folds and trials of searches. Hours of finished runs are measured, and those
that are left are estimated at their pace. Estimated hours show only whether a table takes hours or
months: the number of images to train on over the images per second that a network is assumed to
train on one data-center GPU (A100 or newer, TF32, decoding fast enough), or on one CPU core with
device=cpu. Without TF32 a GPU is half as fast. An image of an evaluation costs a third of one in
training. Training that may stop early is assumed to last for five times its patience. Methods that
pass images through the network twice or more count as often. The estimate is unknown for a network
without a known speed, and for a dataset whose reader does not say how many images it trains on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import environment  # noqa: F401
import pandas as pd
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from dml.cli.error_lines import report_errors
from dml.cli.parser import make_parser
from dml.config.command_line import refuse_repeated
from dml.config.explain import explain
from dml.core.atomic_io import read_json
from dml.core.errors import ConfigError, first_line
from dml.core.option_values import SPLITS
from dml.core.plain_text import print_plain
from dml.results.catalog import Cell, experiment_ids, list_cells
from dml.results.tables import Column, Table, terminal_table
from dml.runs.console import console

BUDGET = ("protocol.repeats", "protocol.epochs", "protocol.steps_per_epoch", "search.trials")
COLUMNS = (
    *("experiment", "cells", "done", "trainings", "GB on disk"),
    *("hours (estimated)", "measured", "left"),
)

NETWORKS: dict[str, tuple[float | None, float | None, float | None]] = {
    # images per second in training on a GPU, and on one core; millions of parameters
    "bn_inception": (1200.0, None, 10.3),
    "resnet50": (800.0, None, 23.5),
    "vit_s16": (900.0, None, 21.7),
    "dino_s16": (900.0, None, 21.7),
    "vit_b16": (350.0, None, 85.8),
    "small_cnn": (20000.0, 600.0, 0.1),  # evaluations every 50 steps included
    "tf_efficientnet_lite0": (None, 45.0, None),  # at 48 pixels
    "identity": (30000.0, 25000.0, 0.2),  # rows of 1,280 features, and a head of 1,280 × 128
}
UNKNOWN = (None, None, None)
FLOAT32_SPEED = 0.5  # on a GPU, relative to TF32
EVALUATION_COST = 1 / 3  # of an image, relative to training
PATIENCES = 5  # that training is assumed to last for, where it may stop early


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 on a mistake in the command."""
    parser = make_parser(__doc__)
    parser.add_argument("experiment", help="an id, or all")
    parser.add_argument("overrides", nargs="*", help="options of train.py")
    parser.add_argument("--runs", default="outputs", help="folder of runs (default: outputs)")
    options = parser.parse_intermixed_args(argv)
    refuse_repeated([f"experiment={options.experiment}", *options.overrides])
    ids = experiment_ids() if options.experiment == "all" else [options.experiment]
    try:
        plans = [plan_frame(one, options.overrides, options.runs) for one in ids]
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        chosen = [] if options.experiment == "all" else [f"experiment={options.experiment}"]
        raise ConfigError(
            explain([*chosen, *options.overrides], "train") or [first_line(error)]
        ) from error
    if options.experiment != "all":
        for cell in plans[0].itertuples():
            reduced = [w for w in cell.overrides if w.partition("=")[0].lstrip("+") in BUDGET]
            note = f"  [reduced: {' '.join(reduced)}]" if reduced else ""
            print_plain(f"{cell.status:8s} {cell.trainings:4d} trainings  {cell.command}{note}")
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


def estimate_hours(cell: Cell) -> float | None:
    """Returns the hours of all trainings of a cell; None if they are unknown."""
    if cell.trainings == 0:
        return 0.0
    hours = estimate_training_hours(cell.options)
    return None if hours is None else hours * cell.trainings


def estimate_training_hours(cfg: Any) -> float | None:
    """Returns the hours of one training; None if they are unknown."""
    protocol, data, method = cfg.protocol, cfg.data, cfg.method
    on_cpu, share = cfg.device == "cpu", SPLITS[protocol.splits].training_share
    speed = NETWORKS.get(cfg.backbone.name, UNKNOWN)[on_cpu]
    images = _train_images(data.reader["_target_"])
    steps = protocol.steps_per_epoch
    if steps is None and images is not None:
        steps = images * share // data.batch_size
    if speed is None or steps is None:
        return None
    if not on_cpu and cfg.precision == "fp32" and cfg.speed == "exact":
        speed *= FLOAT32_SPEED
    epochs, patience = protocol.epochs, protocol.stopping.patience
    every = protocol.evaluate_every / (steps if protocol.evaluate_unit == "steps" else 1)
    if patience is not None:
        in_epochs = protocol.stopping.unit == "epochs"
        epochs = min(epochs, PATIENCES * patience * (1 if in_epochs else every))
    passes = 2.0 if method.name == "imix" else 1.0
    if method.name == "metrix" and "input" in method.types:
        # About three mixes of a batch with few images per class, in the steps that draw this type.
        passes = 1 + 3 / len(method.types)
    work = epochs * steps * data.batch_size * passes
    if images is not None and not on_cpu:
        # Published splits have about as many test images as training images.
        validation = images * (1 - share if share < 1 else 1)
        work += epochs / every * validation * EVALUATION_COST
    return work / speed / 3600


def _train_images(reader: str) -> int | None:
    """Returns the number of training images of a reader's dataset; None if it is not fixed.

    Args:
        reader: dotted name of a reader, whose module may define `TRAIN_IMAGES`.
    """
    with suppress(ImportError, ValueError):
        return getattr(import_module(reader.rpartition(".")[0]), "TRAIN_IMAGES", None)
    return None


def estimate_gigabytes(cell: Cell) -> float | None:
    """Returns the disk space of the models that a finished run keeps; None if it is unknown."""
    millions = NETWORKS.get(cell.options.backbone.name, UNKNOWN)[2]
    models = cell.options.protocol.repeats * SPLITS[cell.options.protocol.splits].folds
    return None if millions is None else 4e-3 * millions * models * (cell.trainings > 0)


def plan_frame(
    experiment: str, overrides: Sequence[str] = (), runs: str = "outputs"
) -> pd.DataFrame:
    """Returns a row per run of an experiment, finished or not.

    Columns: `experiment`, `command`, `overrides`, `status` (done, started or missing), `trainings`,
    `estimated` hours on a GPU, or on one core with `device=cpu`, and `gigabytes` on disk (NaN:
    unknown), and `measured` hours of finished runs.

    Args:
        experiment: id of the experiment.
        overrides: options of the command line; another budget means other runs.
        runs: folder of run folders.

    Raises:
        ConfigError: wrong options, a line each.
    """
    rows = []
    for cell in list_cells(experiment, overrides, runs):
        summary = read_json(cell.folder / "summary.json")
        started = (cell.folder / "config.yaml").exists()
        status = "done" if summary else "started" if started else "missing"
        measured = summary["wall_seconds"] / 3600 if summary else None
        costs = estimate_hours(cell), estimate_gigabytes(cell), measured
        rows.append((experiment, cell.command, cell.overrides, status, cell.trainings, *costs))
    numbers = ["estimated", "gigabytes", "measured"]
    columns = ["experiment", "command", "overrides", "status", "trainings", *numbers]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(numbers, float))


def hours_left(plan: pd.DataFrame) -> float:
    """Returns the hours of the runs that are not finished, at the pace of those that are."""
    done = plan.status == "done"
    expected = plan.estimated[done].sum(skipna=False)
    pace = plan.measured.sum() / expected if expected else 1.0
    return pace * plan.estimated[~done].sum(skipna=False)


if __name__ == "__main__":
    sys.exit(main())
