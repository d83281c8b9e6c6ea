"""MLRC on a few glyphs: four folds of a network that trains in a moment."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

SMALL = (
    *("protocol=mlrc", "data=glyphs", "data.reader.classes=24", "data.reader.per_class=6"),
    *("device=cpu", "backbone.width=4", "embedder.size=8", "data.batch_size=8"),
    *("data.eval_batch_size=200", "protocol.steps_per_epoch=2", "protocol.epochs=1"),
    "protocol.evaluate_every=1",
)


def rows(folder: Path) -> list[dict[str, str]]:
    """The rows of `history.csv`."""
    with open(folder / "history.csv", newline="") as file:
        return list(csv.DictReader(file))


def essence(folder: Path) -> tuple[bytes, Any, Any, Any]:
    """What must be equal between two ways to the same result."""
    summary = json.loads((folder / "summary.json").read_text())
    parts = [summary[key] for key in ("metrics", "concatenated", "best_epoch")]
    return (folder / "history.csv").read_bytes(), *parts
