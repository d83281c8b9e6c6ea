"""State of a training run: network, method, optimizer, scheduler, and random number generators."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from dml.core.errors import ConfigError, first_line
from dml.training.interfaces import Method

LOGGED_GROUPS = ("backbone", "loss")  # others only if their rate is not that of the backbone
PARTS = re.compile(r".*_\d+")  # names of further layers of a group


@dataclass
class TrainState:
    """The objects that a training run changes.

    Attributes:
        embedder: the network; its `backbone` is frozen during warm-up.
        method: computes the loss.
        optimizer: optimizer of the parameters of network and method.
        scheduler: learning rate scheduler; None: constant learning rates.
        schedule_unit: "epochs" or "steps", after each of which the scheduler is stepped.
        average: the averaged weights and BatchNorm statistics, which are evaluated; None: those of
            the last step are.
    """

    embedder: nn.Module
    method: Method
    optimizer: Optimizer
    scheduler: LRScheduler | None = None
    schedule_unit: Literal["epochs", "steps"] = "epochs"
    average: AveragedModel | None = None

    def __post_init__(self) -> None:
        self._logged = _find_logged_groups(self.optimizer)
        self._used_rates: dict[str, float] = {}  # of the last step

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next(chain(self.embedder.parameters(), self.embedder.buffers())).device

    def train(self, mode: bool = True) -> None:
        """Sets network and method to training mode, or to evaluation mode."""
        self.embedder.train(mode)
        self.method.train(mode)

    def learning_rates(self) -> dict[str, float]:
        """Returns the learning rates of the last step: column of `history.csv` → value."""
        return dict(self._used_rates)

    def end_step(self) -> None:
        """Averages the weights, and steps a scheduler that counts training steps."""
        if self.average is not None:
            self.average.update_parameters(self.embedder)
        for group in self.optimizer.param_groups:
            if group.get("name") in self._logged:
                self._used_rates[f"lr_{group['name']}"] = group["lr"]
        if self.schedule_unit == "steps":
            self._step_scheduler()

    def end_epoch(self) -> None:
        """Steps a scheduler that counts epochs."""
        if self.schedule_unit == "epochs":
            self._step_scheduler()

    def _step_scheduler(self) -> None:
        """Steps the scheduler, except for ReduceLROnPlateau."""
        if self.scheduler is not None and not isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step()

    def end_evaluation(self, score: float) -> None:
        """Steps the scheduler if it is ReduceLROnPlateau, which depends on the score."""
        if isinstance(self.scheduler, ReduceLROnPlateau):
            self.scheduler.step(score)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Puts the averaged weights, if there are any, into the network meanwhile."""
        self._exchange_weights()
        try:
            yield
        finally:
            self._exchange_weights()

    def _exchange_weights(self) -> None:
        """Exchanges the weights and buffers of the network with the averaged ones."""
        if self.average is None:
            return
        for tensors in (nn.Module.parameters, nn.Module.buffers):
            for trained, averaged in zip(
                tensors(self.embedder), tensors(self.average.module), strict=True
            ):
                trained.data, averaged.data = averaged.data, trained.data

    def weights(self) -> dict[str, Any]:
        """Returns the state of network and method, the content of `best.pt`."""
        network = self.embedder if self.average is None else self.average.module
        return {"embedder": network.state_dict(), "method": self.method.state_dict()}

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of all objects, in plain types and tensors."""
        state = {
            "embedder": self.embedder.state_dict(),
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "learning_rates": self.learning_rates(),
        }
        if self.average is not None:
            state["average"] = self.average.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the result of `state_dict`."""
        self.embedder.load_state_dict(state["embedder"])
        self.method.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._used_rates = dict(state["learning_rates"])
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])


def _find_logged_groups(optimizer: Optimizer) -> list[str]:
    """Returns the names of the parameter groups whose learning rates are logged."""
    named = [group for group in optimizer.param_groups if "name" in group]
    rates = {group["name"]: group["lr"] for group in named}
    names = []
    for name, rate in rates.items():
        is_other = PARTS.fullmatch(name) is None and rate != rates.get("backbone")
        if name in LOGGED_GROUPS or is_other:
            names.append(name)
    return names


def average_weights(embedder: nn.Module, decay: float) -> AveragedModel:
    """Returns the running average of a network's weights and BatchNorm statistics.

    It is a copy of the network until the first step, after which it has the weights of that step.

    Args:
        embedder: the network.
        decay: weight of the average so far at each later step, 0–1.

    Raises:
        ConfigError: the network cannot be copied.
    """
    try:
        return AveragedModel(embedder, multi_avg_fn=_moving_average(decay), use_buffers=True)
    except Exception as error:  # of any class: the network may hold anything
        raise ConfigError([f"ema: the network cannot be copied: {first_line(error)}"]) from error


def _moving_average(decay: float) -> Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]:
    """Returns a function that moves averages towards weights, and copies whole numbers.

    That of torch also averages counts and indices (such as the relative positions of Swin), and
    cuts off the decimals of the result.
    """
    average_floats = get_ema_multi_avg_fn(decay)

    def update(averages: Sequence[Tensor], weights: Sequence[Tensor], steps: Any) -> None:
        if averages[0].is_floating_point() or averages[0].is_complex():
            average_floats(averages, weights, steps)
            return
        for average, weight in zip(averages, weights, strict=True):
            average.copy_(weight)

    return update


def random_state(device: torch.device) -> dict[str, Any]:
    """Returns the state of every global random number generator, in plain types.

    Args:
        device: device of the run; if it is a GPU, the state of its generator is included.
    """
    kind, keys, position, has_gauss, cached = cast(tuple[Any, ...], np.random.get_state())
    version, internal, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state(device)] if device.type == "cuda" else [],
        "numpy": [kind, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, cached],
        "python": [version, list(internal), gauss],
    }


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restores the result of `random_state`, on any device."""
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"]:
        torch.cuda.set_rng_state(state["cuda"][0], device)
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
