"""Starting a run from its config, and comparing what two runs left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig

from dml.runs.folder.run_folder import RunFolder
from tests.conftest import run_config

JOB = "repeat0-fold0"  # the only model of a run of `traditional`


class Results(NamedTuple):
    """The part of a run folder that is equal, bit for bit, however often the run was killed."""

    history: bytes
    best_weights: bytes | None
    metrics: Any
    concatenated: Any
    best_epoch: Any


def results_of(folder: RunFolder) -> Results:
    """Reads the results of a finished run."""
    summary = json.loads(folder.summary.read_text())
    best = folder.job(JOB) / "best.pt"
    return Results(
        folder.history.read_bytes(),
        best.read_bytes() if best.exists() else None,
        *(summary.get(key) for key in ("metrics", "concatenated", "best_epoch")),
    )


def only_run_folder(outputs: Path) -> RunFolder:
    """Returns the single run folder below `outputs`."""
    (config,) = outputs.rglob("config.yaml")
    return RunFolder(config.parent)


def start(cfg: DictConfig) -> dict[str, Any]:
    """Checks a composed config and runs it; returns the summary."""
    return run_config(cfg)[0]
