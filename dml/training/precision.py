"""The network's arithmetic. Embeddings and losses stay float32 in all of them.

`fp32` is float32 throughout; on its own, torch would let GPUs round the factors of convolutions.
`tf32` lets them: ten bits of each factor count. Matrix products, of which losses are made, never
are rounded, so that transformers gain nothing by it. `bf16` runs the network under autocast.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from dml.core.errors import UserError


def set_convolutions(precision: str, device: torch.device) -> None:
    """Sets, for this process, how convolutions of float32 numbers are computed.

    Raises:
        UserError: `tf32` without a GPU.
    """
    if precision == "tf32" and device.type != "cuda":
        raise UserError("precision: tf32 is a format of GPUs, and this run has none; use fp32")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """What the network runs under: bfloat16 where torch considers it safe, or no change."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()
