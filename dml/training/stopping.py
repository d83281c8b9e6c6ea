"""Early stopping, and the best evaluation so far."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass
from typing import Any

# Of an evaluation without the metric that selects the best one: below every score.
NO_SCORE = -sys.float_info.max


@dataclass
class Stopping:
    """Early stopping on a score to be maximized.

    Args:
        patience: None: never stop early. With the unit `evaluations`: stop at the patience-th
            evaluation in a row without improvement (mft). With the unit `epochs`: stop more than
            `patience` epochs after the best epoch (MLRC).
        unit: `evaluations` or `epochs`.
        min_delta: an improvement must exceed this; 0: strictly better.
    """

    patience: int | None
    unit: str = "evaluations"
    min_delta: float = 0.0
    best_score: float = -math.inf
    best_epoch: float = 0.0
    best_step: int = 0
    stalled: int = 0

    def is_better(self, score: float) -> bool:
        """Returns whether a score is an improvement."""
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
        """Returns whether the score has not improved for `patience` evaluations or epochs."""
        if self.patience is None:
            return False
        if self.unit == "epochs":
            return epoch - self.best_epoch > self.patience
        return self.stalled >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """Returns all fields, in plain types."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the result of `state_dict`."""
        vars(self).update(state)
