"""Refuses embeddings and labels that no measure could be right on."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def check_embeddings(embeddings: Tensor, name: str) -> Tensor:
    """Returns the embeddings in float32 or float64.

    Raises:
        ValueError: not a non-empty floating-point matrix, or not finite; names the argument.
    """
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise ValueError(
            f"{name} must be a floating-point matrix (items by dimensions), got"
            f" {embeddings.dtype} of shape {tuple(embeddings.shape)}"
        )
    if not embeddings.numel():
        raise ValueError(f"{name} is empty: shape {tuple(embeddings.shape)}")
    embeddings = embeddings.detach()
    if embeddings.dtype not in (torch.float32, torch.float64):
        embeddings = embeddings.float()
    # a sum is finite only if all values are, and needs no mask as large as the matrix
    if not math.isfinite(embeddings.sum().item()):
        bad = sum(int((~part.isfinite()).sum()) for part in embeddings.split(4096))
        if bad:
            raise ValueError(f"{name}: {bad} of {embeddings.numel()} values are NaN or infinite")
    return embeddings


def check_labels(labels: Tensor, length: int, name: str) -> None:
    """Raises ValueError unless `labels` holds `length` integers."""
    if labels.is_floating_point() or labels.is_complex():
        raise ValueError(f"{name} must be integers, got {labels.dtype}")
    if labels.shape != (length,):
        raise ValueError(
            f"{name} must have shape ({length},) like its embeddings, got {tuple(labels.shape)}"
        )
