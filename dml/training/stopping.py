"""Early stopping, and the best evaluation so far."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Stopping:
    """Early stopping on a score to be maximized.

    Args:
        patience: None never stops early. Counted in `evaluations`: stop at the patience-th in a row
            without improvement (mft). Counted in `epochs`: stop when the epoch is more than
            `patience` past the best one (MLRC).
        unit: `evaluations` or `epochs`.
        min_delta: an improvement is more than this; 0 means strictly better.
    """

    patience: int | None
    unit: str = "evaluations"
    min_delta: float = 0.0
    best_score: float = -math.inf
    best_epoch: float = 0.0
    best_step: int = 0
    stalled: int = 0

    def is_better(self, score: float) -> bool:
        """Returns True if a score is an improvement."""
        return score > self.best_score + self.min_delta

    def update(self, score: float, epoch: float, step: int) -> bool:
        """Adds one evaluation; returns True if it is the best so far."""
        if self.is_better(score):
            self.best_score, self.best_epoch, self.best_step = score, epoch, step
            self.stalled = 0
            return True
        self.stalled += 1
        return False

    def exhausted(self, epoch: float) -> bool:
        """Returns True if the score has not improved for longer than `patience`."""
        if self.patience is None:
            return False
        if self.unit == "epochs":
            return epoch - self.best_epoch > self.patience
        return self.stalled >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """All fields, in plain types."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        for key, value in state.items():
            setattr(self, key, value)
