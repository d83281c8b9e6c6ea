"""Progress of experiments: runs that are finished, started or missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from dml.results.catalog import Cell, list_cells
from dml.results.cost import estimate_hours, sum_hours

BUDGET = ("protocol.repeats", "protocol.epochs", "protocol.steps_per_epoch", "search.trials")


class CellStatus(StrEnum):
    """Progress of one run."""

    DONE = "done"
    STARTED = "started"
    MISSING = "missing"


@dataclass(frozen=True)
class Progress:
    """Progress of an experiment, or of a part of it.

    Attributes:
        id: id of the experiment.
        cells: all runs.
        done: number of finished runs.
        measured: hours that the finished runs took.
        estimated: hours of all runs on a GPU, or on one core with `device=cpu`; None if unknown.
    """

    id: str
    cells: tuple[Cell, ...]
    done: int
    measured: float
    estimated: float | None

    @property
    def left(self) -> float | None:
        """Hours of the runs that are not finished, at the pace of those that are."""
        finished = [cell for cell in self.cells if _read_summary(cell.folder)]
        expected = sum_hours([estimate_hours(cell) for cell in finished])
        if self.estimated is None or expected is None:
            return None
        pace = self.measured / expected if expected else 1.0
        return pace * (self.estimated - expected)

    @property
    def trainings(self) -> int:
        """Models to train, finished or not."""
        return sum(cell.trainings for cell in self.cells)


def measure_progress(
    experiment: str, overrides: Sequence[str] = (), runs: str = "outputs"
) -> Progress:
    """Returns the progress of an experiment.

    Args:
        experiment: id of the experiment.
        overrides: options of the command line; another budget means other runs.
        runs: folder of run folders.
    """
    words = [word for word in overrides if not word.startswith("outputs=")]
    place = [] if runs == "outputs" else [f"outputs={runs}"]
    cells = tuple(list_cells(experiment, [*words, *place]))
    summaries = list(filter(None, (_read_summary(cell.folder) for cell in cells)))
    return Progress(
        id=experiment,
        cells=cells,
        done=len(summaries),
        measured=sum(summary["wall_seconds"] for summary in summaries) / 3600,
        estimated=sum_hours([estimate_hours(cell) for cell in cells]),
    )


def cell_status(cell: Cell) -> CellStatus:
    """Returns the progress of a run, read from its folder."""
    if _read_summary(cell.folder):
        return CellStatus.DONE
    started = (cell.folder / "config.yaml").exists()
    return CellStatus.STARTED if started else CellStatus.MISSING


def budget_overrides(cell: Cell) -> list[str]:
    """Returns the overrides that give a run another budget than its experiment: `BUDGET`."""
    return [word for word in cell.overrides if word.partition("=")[0].lstrip("+") in BUDGET]


def _read_summary(folder: Path) -> dict[str, Any]:
    """Returns a run's summary; an empty one if the run is not finished."""
    try:
        return json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
