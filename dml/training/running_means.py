"""Means of logged values since the last evaluation, and the check that the loss is finite."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from dml.core.errors import UserError


class RunningMeans:
    """Means whose sums stay on the device, so that no step waits for the one before it."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._steps = 0
        self._bad_step: Tensor | None = None

    def update(self, values: dict[str, Tensor], step: int) -> None:
        """Adds the values of one step, `loss` among them."""
        for name, value in values.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value.clone()
        self._steps += 1
        bad = torch.where(torch.isfinite(values["loss"]), math.inf, float(step))
        self._bad_step = bad if self._bad_step is None else torch.minimum(self._bad_step, bad)

    def check_finite(self) -> None:
        """Checks the losses so far; waits for the device.

        Raises:
            UserError: a loss was not finite; the message names its step.
        """
        if self._bad_step is not None and math.isfinite(self._bad_step.item()):
            raise UserError(
                f"optim.lr: the loss is not finite from step {int(self._bad_step.item())} on; "
                f"the checkpoint before it is kept, try a smaller optim.lr or optim.loss_lr"
            )

    def compute_and_reset(self) -> dict[str, float]:
        """Returns the means and starts new ones."""
        means = {name: (total / self._steps).item() for name, total in self._sums.items()}
        self._sums, self._steps = {}, 0
        return means

    def state_dict(self) -> dict[str, Any]:
        """The sums, in plain types and tensors."""
        return {"sums": self._sums, "since": self._steps}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Restores what `state_dict` returned."""
        self._sums = {name: value.to(device) for name, value in state["sums"].items()}
        self._steps = state["since"]
