"""Saving and restoring the global random number generators."""

from __future__ import annotations

import random
from typing import Any, cast

import numpy as np
import torch


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
