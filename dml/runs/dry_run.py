"""A dry run of a method on dummy images, before a run creates its folder or loads data.

Types and ranges do not show whether a loss fails with its arguments, or when an optimizer divides
by zero; two steps on eight dummy images do, in a moment.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from dml.config.schema import Config
from dml.core.errors import ConfigError, UserError, describe_failure, first_line, is_out_of_memory
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.runs.unregistered import check_late, check_registered, check_shapes
from dml.tracking.history import FIRST
from dml.training.interfaces import Method
from dml.training.schedules import find_schedule_notes

MAX_STEPS = 10_000  # of a schedule that are tried
CALLED_AS = {
    "loss": "loss(embeddings, labels[, indices_tuple])",
    "method": "method(embedder, images, labels)",
}
PER_CLASS, SIDE = 4, 8  # of the dummy images
BuildOptimizer = Callable[[nn.Module, nn.Module], tuple[Optimizer, LRScheduler | None]]


def dry_run(
    method: Method,
    config: Config,
    build_optimizer: BuildOptimizer,
    length: int,
    classes: int,
    size: int,
    device: torch.device,
) -> list[str]:
    """Tries a copy of a method with its loss, and optimizer and schedule, for two steps.

    A ValueError of the method may be due to the dummy batch, and is left to the run; a method that
    cannot be copied is not tried.

    Args:
        method: the method with its loss; it is not changed.
        config: of the run.
        build_optimizer: returns optimizer and schedule of a network and a method.
        length: how often the run steps the schedule.
        classes: number of training classes.
        size: of an embedding.
        device: of the method.

    Returns:
        Notes on tensors of a custom loss or method, and on the schedule.

    Raises:
        ConfigError: the first error.
        UserError: `build_optimizer` raises it.
    """
    option = "loss" if type(method).__module__.startswith("dml.") else "method"
    check_shapes(method, option)
    notes = check_registered(method, option)
    try:
        method = copy.deepcopy(method)
    except Exception:  # of any class: a custom loss may hold anything
        return notes
    network = Embedder(SmallCNN(width=1), size, normalize=config.embedder["normalize"]).to(device)
    try:
        _try_steps(method, network, option, classes, device)
    except ConfigError:
        raise
    except (ValueError, UserError):
        pass
    except Exception as error:  # of any class, by a custom loss or miner
        if is_out_of_memory(error):
            raise
        arguments = f", called as {CALLED_AS[option]}" if isinstance(error, TypeError) else ""
        reason = f"raised on a batch{arguments}: {describe_failure(error)}"
        raise ConfigError([f"{option}: {reason}"]) from error
    optimizer, schedule = build_optimizer(network, method)
    _try_optimizer(optimizer, schedule, config, length)
    if schedule is None:
        return notes
    has_score = config.protocol.selected_on != "nothing"
    notes += find_schedule_notes(schedule, length, has_score, config.optim.schedule_unit)
    return notes


def _try_steps(
    method: Method, network: Embedder, option: str, classes: int, device: torch.device
) -> None:
    """Computes the losses of two dummy batches, and their gradients.

    Args:
        method: of which nothing is used afterwards.
        network: a small one.
        option: `loss` or `method`, which an error names.
        classes: number of training classes.
        device: of method and network.

    Raises:
        ConfigError: the result is no loss, or has weights that were made too late.
        Exception: whatever the method raises.
    """

    def pool(per_class: int, number: int) -> list[tuple[Tensor, Tensor]]:
        pool_labels = torch.arange(classes, device=device).repeat_interleave(per_class)
        return [(torch.rand(len(pool_labels), 3, SIDE, SIDE, device=device), pool_labels)]

    method.attach(pool)
    earlier = dict(method.named_parameters())
    labels = torch.tensor([0, classes - 1], device=device).repeat_interleave(PER_CLASS)
    images = torch.rand(len(labels), 3, SIDE, SIDE, device=device)
    for _ in range(2):  # a loss may keep the graph of the first step, and fail in the second
        loss = _check_result(method(network, images, labels), option, classes)
        check_late(earlier, method, option)
        if loss.requires_grad:
            loss.backward()


def _check_result(result: Any, option: str, classes: int) -> Tensor:
    """Returns the loss in the result of a method.

    Raises:
        ConfigError: it is not a loss with numbers to log.
    """
    if not isinstance(result, tuple | list) or len(result) != 2:
        got = f"{len(result)} objects" if isinstance(result, tuple) else f"a {_kind(result)}"
        wanted = "the loss and numbers to log, as in `loss, {}`"
        raise ConfigError([f"{option}: must return {wanted}; returned {got}"])
    loss, logs = result
    _check_value(loss, option, classes)
    if not isinstance(logs, Mapping):
        raise ConfigError(
            [f"{option}: must return numbers to log as a dict of names; returned a {_kind(logs)}"]
        )
    for name, value in logs.items():
        if name in FIRST:
            raise ConfigError(
                [f"{option}: logs '{name}', a column that history.csv has; choose another name"]
            )
        is_number = isinstance(value, int | float)
        if not is_number and not (isinstance(value, Tensor) and value.numel() == 1):
            raise ConfigError([f"{option}: logs '{name}', which must be a number: {value!r}"])
    return cast(Tensor, loss)


def _kind(value: Any) -> str:
    return type(value).__name__


def _check_value(loss: Any, option: str, classes: int) -> None:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        tensor = isinstance(loss, Tensor)
        got = f"a tensor of shape {list(loss.shape)}" if tensor else repr(loss)
        wanted = f"one number, a 0-d tensor, or logits for the {classes} classes"
        raise ConfigError([f"{option}: must return {wanted}; returned {got}"])
    if not loss.requires_grad and loss.item() != 0:
        raise ConfigError([f"{option}: its value has no gradient; is it detached?"])


def _try_optimizer(
    optimizer: Optimizer, schedule: LRScheduler | None, config: Config, length: int
) -> None:
    """Steps optimizer and schedule as the run would, with gradients of zero.

    Constructors of schedules check little: one with `step_size: 0` fails at the end of the first
    epoch, one for fewer epochs at the end of its last.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    option = "optim.groups" if config.optim.groups else "optim.args"
    try:
        optimizer.step()
        if schedule is not None:
            option = "optim.schedule"
            score = (0.0,) if isinstance(schedule, ReduceLROnPlateau) else ()
            for _ in range(min(length, MAX_STEPS)):
                schedule.step(*score)
    except Exception as error:  # of any class, by torch or a custom optimizer
        raise ConfigError(
            [f"{option}: these values make it fail in use: {first_line(error)}"]
        ) from error
