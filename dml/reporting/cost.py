"""What experiments cost and how far they are.

The estimate: images to be trained on, over the images per second that a network is guessed to train
on one data-center GPU (A100 or newer, float32 with TF32, images decoded in time). Where training
may stop early, it is taken to last for five times its patience. Methods that pass the network twice
or more count that often. It says whether a table takes hours or months, not more; finished runs are
counted by their clock.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from dml.core.option_values import SPLITS
from dml.reporting.catalog import Cell, about, cells, names

IMAGES_PER_SECOND = {
    "bn_inception": 1200.0,
    "resnet50": 800.0,
    "vit_s16": 900.0,
    "dino_s16": 900.0,
    "vit_b16": 350.0,
    "small_cnn": 20000.0,
}
TRAIN_IMAGES = {"cub": 5864, "cars": 8054, "sop": 59551, "inshop": 25882, "digits": 901}
BEGIN, END = "<!-- experiments -->", "<!-- /experiments -->"  # around the README's table
PATIENCES = 5  # that training lasts for, where it may stop early


class Status(StrEnum):
    """How far a run is."""

    DONE = "done"
    STARTED = "started"
    MISSING = "missing"


@dataclass(frozen=True)
class Line:
    """One experiment, or one part of it.

    Attributes:
        id: of the experiment.
        cells: all runs.
        done: those that are finished.
        stand_in: finished runs on stand-in data that belong to it, whatever was asked for.
        measured: hours that the finished runs took.
        estimated: hours of all runs.
    """

    id: str
    cells: tuple[Cell, ...]
    done: int
    stand_in: int
    measured: float
    estimated: float

    @property
    def trainings(self) -> int:
        """Models to train, finished or not."""
        return sum(cell.trainings for cell in self.cells)

    @property
    def state(self) -> str:
        """`run`, `12 of 30 cells`, `stand-in only` or `not run`."""
        if self.cells and self.done == len(self.cells):
            return "run"
        if self.done:
            return f"{self.done} of {len(self.cells)} cells"
        if not self.cells:
            return "a script"
        return "stand-in only" if self.stand_in else "not run"


def line(experiment: str, overrides: Sequence[str] = (), runs: str = "outputs") -> Line:
    """What is known of an experiment.

    Args:
        experiment: its id.
        overrides: of the command line; another budget gives other runs.
        runs: the folder of run folders.
    """
    found = tuple(cells(experiment, [*overrides, f"outputs={runs}"]))
    summaries = [summary for cell in found if (summary := _summary(cell.folder)) is not None]
    everything = Path(runs, experiment).glob("*/*")
    stand_ins = sum(bool((_summary(path) or {}).get("stand_in")) for path in everything)
    return Line(
        experiment,
        found,
        len(summaries),
        stand_ins,
        sum(summary["wall_seconds"] for summary in summaries) / 3600,
        sum(hours(cell.config) * cell.trainings for cell in found),
    )


def status(cell: Cell) -> Status:
    """How far a run is, from its folder."""
    if _summary(cell.folder) is not None:
        return Status.DONE
    return Status.STARTED if (cell.folder / "config.yaml").exists() else Status.MISSING


def hours(cfg: DictConfig) -> float:
    """Estimated GPU hours of one training."""
    protocol, data = cfg.protocol, cfg.data
    images = TRAIN_IMAGES.get(data.name, 5864) * SPLITS[protocol.splits].training_share
    steps = protocol.steps_per_epoch or images // data.batch_size
    total = _epochs(cfg, steps) * steps * data.batch_size
    return total * _passes(cfg) / IMAGES_PER_SECOND.get(cfg.backbone.name, 500.0) / 3600


def _epochs(cfg: DictConfig, steps_per_epoch: float) -> float:
    """How long training is taken to last."""
    protocol, patience = cfg.protocol, cfg.protocol.stopping.patience
    if patience is None:
        return protocol.epochs
    if protocol.stopping.unit == "epochs":
        every = 1.0
    else:
        in_steps = protocol.evaluate_unit == "steps"
        every = protocol.evaluate_every / (steps_per_epoch if in_steps else 1)
    return min(protocol.epochs, PATIENCES * patience * every)


def reduced(cell: Cell) -> list[str]:
    """Options of the budget in which a run falls short of what the experiment itself says.

    They are what the command line said beside the experiment: fewer repeats, epochs, steps or
    trials.
    """
    budget = ("protocol.repeats", "protocol.epochs", "protocol.steps_per_epoch", "search.trials")
    return [word for word in cell.overrides if word.partition("=")[0].lstrip("+") in budget]


def _passes(cfg: DictConfig) -> float:
    """How much of the network's work a method needs, beside one pass of the batch."""
    method: Any = cfg.method
    if method.name == "imix":
        return 2.0
    if method.name == "metrix" and "input" in method.types:
        # about three mixes of a batch with few images per class, drawn as often as the type is
        return 1 + 3 / len(method.types)
    return 1.0


def _summary(folder: Path) -> dict[str, Any] | None:
    try:
        return json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def with_table(readme: str, states: dict[str, str]) -> str:
    """The README with its table of experiments made anew.

    Args:
        readme: its text, with the table between the marks.
        states: `Line.state` of each experiment.
    """
    rows = ["| experiment | what | GPU hours | status |", "|---|---|---|---|"]
    for id in names():
        node = about(id)
        cost = "-" if node["gpu_hours"] is None else f"{node['gpu_hours']:,g}"
        rows.append(f"| `experiment={id}` | {node['title']} | {cost} | {states[id]} |")
    before, _, rest = readme.partition(BEGIN)
    after = rest.partition(END)[2]
    return before + BEGIN + "\n" + "\n".join(rows) + "\n" + END + after
