"""Results of a pilot: a row per arm and seed, as written to CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from dml.core.errors import UserError
from dml.results.catalog import Cell
from dml.runs.folder.stored_run import Result, StoredRun, read_run

# On glyphs, repeat 0 starts with the head that the weights were pretrained with.
FIRST_REPEAT = {"glyphs": 1}
NEAR_BEST = 0.95  # share of the best validation score that counts as trained


@dataclass(frozen=True)
class SeedResult:
    """One trained model.

    Scores are percentages of test classes.

    Attributes:
        arm: loss and method, as the experiment's `setting` names them.
        repeat: seeds the model.
        map_at_r, recall_at_1: of the evaluation that was selected on validation classes.
        best_on_test: MAP@R of the evaluation with the highest MAP@R on test classes.
        best_step: of the selected evaluation.
        steps_to_95: of the first evaluation with 95 % of the best validation score.
        stages: of chance-constrained proxies; None of other methods.
        chosen: options that the search chose, as `optim.lr=0.001`.
        trials: configurations that the search tried.
        run: identity of the run, the end of its folder's name.
        revision: commit of the code.
        device: of the run.
        torch: its version.
        command: that runs this arm.
    """

    arm: str
    repeat: int
    map_at_r: float
    recall_at_1: float
    best_on_test: float
    best_step: int
    steps_to_95: int
    stages: int | None
    chosen: str
    trials: int
    run: str
    revision: str
    device: str
    torch: str
    command: str


@dataclass(frozen=True)
class CurvePoint:
    """One evaluation of one model; MAP@R in percent."""

    arm: str
    repeat: int
    step: int
    validation: float
    test: float


def read_results(cells: Iterable[Cell]) -> tuple[list[SeedResult], list[CurvePoint]]:
    """Reads the finished runs among the cells of an experiment, from their `FIRST_REPEAT` on.

    Raises:
        UserError: a run is damaged, or has no scores of test classes during training.
    """
    results: list[SeedResult] = []
    curves: list[CurvePoint] = []
    for cell in cells:
        if not (cell.folder / "summary.json").exists():
            continue
        run, arm = read_run(cell.folder), str(cell.config.experiment.setting)
        if run.summary is None:
            raise UserError(f"{run.folder}: {run.problem}")
        points, first = _read_curve(run, arm), FIRST_REPEAT.get(cell.config.data.name, 0)
        curves += [point for point in points if point.repeat >= first]
        for job in run.summary.jobs:
            if job.repeat >= first:
                own = [point for point in points if point.repeat == job.repeat]
                results.append(_read_result(run, cell, job, own))
    return results, curves


def write_csv(rows: Sequence[Any]) -> str:
    """Returns dataclasses of one kind as a table, a column per field; numbers in full."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [one.name for one in fields(rows[0])], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue()


def _read_curve(run: StoredRun, arm: str) -> list[CurvePoint]:
    points = []
    for row in run.history:
        if "test_map_at_r" not in row:
            raise UserError(
                f"{run.folder}: no scores of test classes during training; "
                f"run it with evaluation.test_curve=true"
            )
        scores = (100 * row["map_at_r"], 100 * row["test_map_at_r"])
        points.append(CurvePoint(arm, int(row["repeat"]), int(row["step"]), *scores))
    return points


def _read_result(
    run: StoredRun, cell: Cell, job: Result, curve: Sequence[CurvePoint]
) -> SeedResult:
    summary: Any = run.summary
    enough = NEAR_BEST * max(point.validation for point in curve)
    search = summary.search or {}
    chosen = " ".join(f"{name}={value}" for name, value in search.get("params", {}).items())
    return SeedResult(
        arm=str(cell.config.experiment.setting),
        repeat=job.repeat,
        map_at_r=100 * job.metrics["map_at_r"],
        recall_at_1=100 * job.metrics["recall_at_1"],
        best_on_test=max(point.test for point in curve),
        best_step=job.best_step or 0,
        steps_to_95=next(point.step for point in curve if point.validation >= enough),
        stages=_count_stages(run, job.repeat),
        chosen=chosen,
        trials=int(search.get("trials", 0)),
        run=run.id,
        revision=str(summary.git_revision),
        device=str(summary.device),
        torch=str(summary.versions.get("torch")),
        command=cell.command,
    )


def _count_stages(run: StoredRun, repeat: int) -> int | None:
    rows = [row for row in run.history if row["repeat"] == repeat]
    numbers = [int(row["stage"]) for row in rows if "stage" in row]
    return 1 + max(numbers) if numbers else None
