"""Schedules of the learning rates: their names, arguments, and what a user may not expect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    CyclicLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)
from torch.optim.swa_utils import SWALR

from dml.core.errors import ConfigError

# Name of a schedule → its class and arguments; "step" is the schedule of mft.
NAMED_SCHEDULES: dict[str, dict[str, Any]] = {
    "cosine": {"_target_": "torch.optim.lr_scheduler.CosineAnnealingLR"},
    "step": {"_target_": "torch.optim.lr_scheduler.StepLR", "step_size": 10, "gamma": 0.5},
}

# Arguments that set the rates of all groups to one value, unless they are lists.
ABSOLUTE_RATES: dict[type[LRScheduler], tuple[str, ...]] = {
    OneCycleLR: ("max_lr",),
    CyclicLR: ("base_lr", "max_lr"),
    SWALR: ("swa_lr",),
}
_EPOCHS = re.compile(r"(\d+) epochs")


def named_schedule(
    schedule: str | dict[str, Any] | None,
    length: int,
    arguments: dict[str, Any],
    epoch: int = 1,
) -> dict[str, Any] | None:
    """Returns the config node of a schedule: `_target_` and arguments; None without a schedule.

    Args:
        schedule: a name of `NAMED_SCHEDULES`, or the node itself; "10 epochs" stands for as many
            steps of the schedule as these have.
        length: how often the schedule is stepped; "cosine" reaches a learning rate of 0 then.
        arguments: further arguments.
        epoch: how often the schedule is stepped in an epoch.
    """
    if schedule is None:
        return None
    if isinstance(schedule, dict):
        return _convert_epochs(schedule | arguments, epoch)
    node = dict(NAMED_SCHEDULES[schedule])
    if schedule == "cosine":
        node["T_max"] = max(length, 1)
    else:
        node["step_size"] *= epoch
    return _convert_epochs(node | arguments, epoch)


def _convert_epochs(value: Any, epoch: int) -> Any:
    """Returns a value in which texts such as "10 epochs" are numbers of steps of a schedule."""
    if isinstance(value, dict):
        return {name: _convert_epochs(entry, epoch) for name, entry in value.items()}
    if isinstance(value, list):
        return [_convert_epochs(entry, epoch) for entry in value]
    if isinstance(value, str) and (match := _EPOCHS.fullmatch(value)):
        return int(match[1]) * epoch
    return value


def scale_rates(node: dict[str, Any], schedule: Any, optimizer: Optimizer, lr: float) -> None:
    """Replaces a rate that a schedule sets for all groups of an optimizer by one for each group.

    Each group keeps its share of `optim.lr`. Otherwise OneCycleLR, for example, would train the
    parameters of the loss with the rate of the network.

    Args:
        node: arguments of the schedule, which are changed.
        schedule: its class.
        optimizer: with the rates of its groups.
        lr: `optim.lr`, above 0.
    """
    if not isinstance(schedule, type):
        return
    for kind, names in ABSOLUTE_RATES.items():
        if not issubclass(schedule, kind):
            continue
        for name in names:
            rate = node.get(name)
            if isinstance(rate, int | float):
                node[name] = [rate * group["lr"] / lr for group in optimizer.param_groups]


def warm_up(optimizer: Optimizer, schedule: LRScheduler | None, steps: int) -> LRScheduler:
    """Returns a schedule that raises the learning rates linearly before another one begins.

    Step i of the warm-up (from 1) has the share i / `steps` of the rates. It is stepped after each
    training step.

    Args:
        optimizer: its rates are changed.
        schedule: of the steps after the warm-up; None: constant rates.
        steps: of the warm-up, at least 1.

    Raises:
        ConfigError: a ReduceLROnPlateau, which follows scores and counts no steps.
    """
    if isinstance(schedule, ReduceLROnPlateau):
        raise ConfigError(
            [
                "optim.warmup_steps: ReduceLROnPlateau is stepped with the score of each "
                "evaluation; use another schedule after a warm-up"
            ]
        )
    rise = LinearLR(optimizer, start_factor=1 / steps, total_iters=steps - 1)
    if schedule is None:
        return rise
    return SequentialLR(optimizer, [rise, schedule], milestones=[steps])


def default_arguments(schedule: Any) -> dict[str, Any]:
    """Returns the arguments of a schedule's class whose defaults in torch do not fit this program.

    ReduceLROnPlateau is stepped with a score, of which more is better.
    """
    if isinstance(schedule, type) and issubclass(schedule, ReduceLROnPlateau):
        return {"mode": "max"}
    return {}


def describe_warmup(warmup_steps: int, total: int) -> list[str]:
    """Returns a note if the warm-up of the rates is as long as the training of `total` steps."""
    if not 0 < total <= warmup_steps:
        return []
    return [
        f"optim.warmup_steps={warmup_steps} is not below the {total} steps of the training: the "
        f"rates reach {total / warmup_steps:.2g} of optim.lr, and no schedule begins"
    ]


def find_schedule_notes(
    schedule: LRScheduler, length: int, has_score: bool, unit: str = "epochs"
) -> Iterator[str]:
    """Yields what a schedule does that its user may not expect.

    Args:
        schedule: a ReduceLROnPlateau is stepped with the score of each evaluation.
        length: how often another one is stepped.
        unit: "epochs" or "steps", after each of which it is stepped.
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
    expected = _expected_length(schedule)
    if expected > max(length, 1):
        remedy = "give its lengths in steps of the training"
        if unit == "epochs":
            remedy = "give its lengths in epochs, or set optim.schedule_unit=steps"
        yield (
            f"optim.schedule: {name} is stepped once per {unit.removesuffix('s')}, and {length} "
            f"{unit} are a part of its {expected} steps; {remedy}"
        )


def _expected_length(schedule: LRScheduler) -> int:
    """Returns the steps of a schedule that is usually stepped with every batch; 0 for others."""
    if isinstance(schedule, SequentialLR):  # after a warm-up
        schedule = schedule._schedulers[-1]
    if isinstance(schedule, OneCycleLR):
        return int(schedule.total_steps)
    if isinstance(schedule, CyclicLR):
        return int(schedule.total_size)
    return 0
