"""Scores a trained run, or a network as it comes: `python evaluate.py --help`."""

from __future__ import annotations

import sys
from typing import Any

from dml.cli import command


def evaluate(cfg: Any) -> None:
    """One evaluation from its composed config."""
    from dml.config import EvaluateConfig, check

    config = check(cfg, EvaluateConfig)  # before torch is loaded
    from dml.scoring import score

    score(config)


if __name__ == "__main__":
    sys.exit(command(evaluate, "evaluate"))
