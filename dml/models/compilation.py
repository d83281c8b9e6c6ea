"""Compilation of the backbone by torch.compile; head, loss and method stay as they are.

The compiled code runs on calls of the backbone alone. Names in checkpoints do not change.
"""

from __future__ import annotations

import torch

from dml.core.errors import UserError
from dml.models.embedder import Embedder


def compile_backbone(embedder: Embedder, choice: bool | str, device: torch.device) -> None:
    """Compiles the backbone of a network in place, at its first call.

    Args:
        embedder: the network.
        choice: the option `compile`; a name is a mode of torch.compile.
        device: of the network.

    Raises:
        UserError: the mode needs a GPU.
    """
    if choice == "reduce-overhead" and device.type != "cuda":
        raise UserError(
            "compile: reduce-overhead records CUDA graphs, and this run has no GPU; use "
            "compile=true or false"
        )
    if isinstance(choice, str):
        embedder.backbone.compile(mode=choice)
    elif choice:
        embedder.backbone.compile()
