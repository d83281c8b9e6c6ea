"""Schedules of the learning rates: their names, arguments, and what a user may not expect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR, ReduceLROnPlateau

# Name of a schedule → its class and arguments; "step" is the schedule of mft.
NAMED_SCHEDULES: dict[str, dict[str, Any]] = {
    "cosine": {"_target_": "torch.optim.lr_scheduler.CosineAnnealingLR"},
    "step": {"_target_": "torch.optim.lr_scheduler.StepLR", "step_size": 10, "gamma": 0.5},
}


def named_schedule(
    schedule: str | dict[str, Any] | None, epochs: int, arguments: dict[str, Any]
) -> dict[str, Any] | None:
    """Returns the config node of a schedule: `_target_` and arguments; None without a schedule.

    Args:
        schedule: a name of `NAMED_SCHEDULES`, or the node itself.
        epochs: length of the training, at whose end "cosine" reaches a learning rate of 0.
        arguments: further arguments.
    """
    if schedule is None:
        return None
    length = {"T_max": max(epochs, 1)} if schedule == "cosine" else {}
    node = schedule if isinstance(schedule, dict) else NAMED_SCHEDULES[schedule] | length
    return node | arguments


def default_arguments(schedule: Any) -> dict[str, Any]:
    """Returns the arguments of a schedule's class whose defaults in torch do not fit this program.

    ReduceLROnPlateau is stepped with a score, of which more is better.
    """
    if isinstance(schedule, type) and issubclass(schedule, ReduceLROnPlateau):
        return {"mode": "max"}
    return {}


def find_schedule_notes(schedule: LRScheduler, epochs: int, has_score: bool) -> Iterator[str]:
    """Yields what a schedule does that its user may not expect.

    Args:
        schedule: is stepped once per epoch; a ReduceLROnPlateau with the score of each evaluation.
        epochs: length of the training.
        has_score: whether an evaluation has a score.
    """
    name = type(schedule).__name__
    if isinstance(schedule, ReduceLROnPlateau):
        if not has_score:
            yield f"optim.schedule: {name} has no score to follow under this protocol"
        elif schedule.mode == "min":
            yield (
                f"optim.schedule: {name} with mode=min lowers the rate while the score rises; "
                f"mode=max lowers it when the score no longer rises"
            )
        return
    length = _length(schedule)
    if length > max(epochs, 1):
        yield (
            f"optim.schedule: {name} is stepped once per epoch, and {epochs} epochs are a part of "
            f"its {length} steps; give its lengths in epochs"
        )


def _length(schedule: LRScheduler) -> int:
    """Returns the steps of a schedule that is usually stepped with every batch; 0 for others."""
    if isinstance(schedule, OneCycleLR):
        return int(schedule.total_steps)
    if isinstance(schedule, CyclicLR):
        return int(schedule.total_size)
    return 0
