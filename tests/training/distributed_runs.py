"""Whole runs for `test_process_group.py`, by one process or by two."""

from __future__ import annotations

import csv
import os
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dml.core.errors import RunStopped, UserError
from dml.core.launcher import read_launch
from dml.training import trainer
from tests.conftest import TINY, compose_config, run_config, without_pictures

FROZEN = "embedder.freeze_batch_norm=true"  # required of several processes without GPUs
SHORT = (FROZEN, "data.batch_size=60", "protocol.steps_per_epoch=3", "protocol.epochs=4")
CCP = ("method=ccp", "loss=c1", "protocol=conventional", "embedder.size=4", "method.pool_size=9")
# At ten times this rate, twelve steps make a thousandfold of the rounding of the first.
STAGES = ("method.proxies_per_class=3", "method.stage_patience=1", "optim.lr=0.001")
RUNS = {
    "mfcont": ("loss=mfcont", *SHORT),
    "ccp": (*CCP, *STAGES, *SHORT),
    "mlrc": ("protocol=mlrc", "loss=proxy_anchor", *SHORT, "data.batch_size=32"),
}
STOPPED_AT = 5


def start(place: Path, *overrides: str, pictures: bool = False) -> Path:
    """A run from its options to its folder, which is returned."""
    cfg = compose_config(f"outputs={place}", *TINY, *overrides)
    with nullcontext() if pictures else without_pictures():  # they take longer than the run
        return run_config(cfg)[1]


def history(folder: Path) -> list[dict[str, float]]:
    """The rows of a run."""
    with open(folder / "history.csv", encoding="utf-8") as file:
        return [{k: float(v) for k, v in row.items() if v != ""} for row in csv.DictReader(file)]


def stopped(place: Path, *overrides: str, rank: int = 0) -> int | None:
    """Starts a run of which one process gets a signal; the status with which it stops."""
    steps = 0

    def after_steps(name: str) -> None:
        nonlocal steps
        steps += name == "after_step"
        if steps == STOPPED_AT and read_launch().rank == rank:
            os.kill(os.getpid(), signal.SIGTERM)

    return _with_fault(after_steps, place, *overrides)


def broken(place: Path, *overrides: str) -> str:
    """Starts a run whose second process fails; returns the error message of this process."""

    def fail(name: str) -> None:
        if name == "before_step" and read_launch().rank == 1:
            raise UserError("data: the second process cannot read it")

    try:
        _with_fault(fail, place, *overrides)
    except UserError as error:
        return str(error)
    return ""


def _with_fault(fault: Callable[[str], None], place: Path, *overrides: str) -> int | None:
    before = trainer.fault_point
    trainer.fault_point = fault
    try:
        start(place, *overrides)
    except RunStopped as stop:
        return stop.status
    finally:
        trainer.fault_point = before
    return None


def runs() -> dict[str, Any]:
    """All runs by two processes; one of them failing comes first, and the next begin afresh."""
    place = Path(os.environ["OUT"])
    found: dict[str, Any] = {"broken": broken(place / "broken", *RUNS["ccp"])}
    for name, options in RUNS.items():
        found[f"run {name}"] = str(start(place / "two", *options, pictures=name == "ccp"))
    found["continued"] = str(start(place / "begun_alone", *RUNS["ccp"]))
    found["status"] = stopped(place / "begun_together", *RUNS["ccp"], rank=1)
    return found
