"""Scores a trained run or an off-the-shelf network: `python evaluate.py --help`."""

from __future__ import annotations

import sys
from typing import Any

from dml.cli import command


def evaluate(cfg: Any) -> None:
    """Runs the evaluation of one composed config."""
    from dml.config.check import check
    from dml.config.schema import EvaluateConfig

    config = check(cfg, EvaluateConfig)  # before torch is loaded
    from hydra.core.hydra_config import HydraConfig

    from dml.runs.evaluate import evaluate

    overrides = HydraConfig.get().overrides.task
    evaluate(config, {word.partition("=")[0].lstrip("+~") for word in overrides})


if __name__ == "__main__":
    sys.exit(command(evaluate, "evaluate"))
