"""Command that trains and evaluates one model, or a grid of them: `train.py`, `dml-train`."""

from __future__ import annotations

from typing import Any

from dml.cli.hydra_command import command


def train(cfg: Any) -> float | None:
    """Trains the model of one composed config; returns the score that a sweeper can maximize."""
    from dml.config.check import check
    from dml.config.schema import Config

    config = check(cfg, Config)  # before torch is loaded, which takes seconds
    from dml.runs.experiment import run, selection_score

    return selection_score(run(cfg, config))


def resume(folder: str) -> None:
    """Continues the run in a folder, which may have been moved."""
    from dml.runs.experiment import resume

    resume(folder)


def main() -> int:
    """Runs the command in `sys.argv` and returns its exit status."""
    return command(train, "train", resume)
