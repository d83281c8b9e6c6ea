"""Numerical precision of the network.

`fp32` is float32 throughout, while torch's default lets GPUs round the factors of convolutions.
`tf32` allows that in all convolutions and float32 matrix products, those of losses too: it uses ten
bits of each factor. `bf16` runs the network under autocast. Evaluation keeps full products of
embeddings in every case (`dml.retrieval.float32_products`).

cuDNN does not choose its kernels by timing (`torch.backends.cudnn.benchmark`): it could choose
others in a run that continues, which then is no longer bit for bit the undisturbed one.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from dml.core.errors import UserError


def set_precision(precision: str, device: torch.device) -> None:
    """Sets the precision of float32 convolutions and matrix products for this process.

    Raises:
        UserError: `tf32` without a GPU.
    """
    if precision == "tf32" and device.type != "cuda":
        raise UserError("precision: tf32 is a format of GPUs, and this run has none; use fp32")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """The context for the network: torch's autocast to bfloat16, or no change."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()
