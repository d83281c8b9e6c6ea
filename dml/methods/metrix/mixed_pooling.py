"""Pooling of mixed feature maps without building them (feature mixup over all pairs of a batch).

A linear pooling commutes with mixing: pooled features are mixed. For max pooling, mixes are built
for a few pairs at a time, and only the position of each maximum is stored; value and gradient come
from the two entries at that position.

Shapes: B images, c channels, h×w maps or t tokens, n = h·w positions, V pairs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dml.core.errors import UserError
from dml.models.backbones import spec_of
from dml.models.embedder import Embedder

CHUNK = {"cpu": 2**21, "cuda": 2**26}  # elements of the mixes built at a time


def pool_mixes(
    embedder: Embedder, features: Tensor, first_V: Tensor, second_V: Tensor, lambda_V: Tensor
) -> Tensor:
    """Returns `embedder.pool` of λ f_first + (1 − λ) f_second for all pairs (V×c).

    Args:
        embedder: a `dml.models.embedder.Embedder`.
        features: B×c×h×w or B×t×c.
        first_V, second_V: indices into `features`.
        lambda_V: λ, weight of the first.
    """
    maps = spec_of(embedder.backbone).kind == "maps"
    pooling = embedder.pooling if maps else "avg"  # one token or a mean of tokens: both are linear
    if embedder.pooling == "native":
        raise UserError("embedder.pooling=native cannot pool mixed features; use avg or max")
    if pooling == "max":
        return max_pool_mixes(features, first_V, second_V, lambda_V)
    if pooling == "avg+max":
        average_Bc = features.mean(dim=(2, 3))
        maximum_Vc = max_pool_mixes(features, first_V, second_V, lambda_V)
        return mix(average_Bc, first_V, second_V, lambda_V) + maximum_Vc
    return mix(embedder.pool(features), first_V, second_V, lambda_V)


def mix(x: Tensor, first_V: Tensor, second_V: Tensor, lambda_V: Tensor) -> Tensor:
    """Returns λ x_first + (1 − λ) x_second, at least float32 (V×…)."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    weight = lambda_V.to(x.dtype).view(len(lambda_V), *[1] * (x.ndim - 1))
    # The gradient of x[rows] depends on the order of threads on a CPU.
    return torch.lerp(x.index_select(0, second_V), x.index_select(0, first_V), weight)


def max_pool_mixes(maps: Tensor, first_V: Tensor, second_V: Tensor, lambda_V: Tensor) -> Tensor:
    """Returns the maximum over positions of λ x_first + (1 − λ) x_second (V×c, like `mix`)."""
    maps_Bnc = maps.flatten(2).transpose(1, 2)  # channels last: the maximum runs over rows
    dtype = torch.promote_types(maps.dtype, torch.float32)
    pooled: Tensor = _MixedMax.apply(
        maps_Bnc.to(dtype).contiguous(), first_V, second_V, lambda_V.to(dtype)
    )
    return pooled


class _MixedMax(torch.autograd.Function):
    """Computes `max_pool_mixes`; stores the position of the maximum per pair and channel."""

    @staticmethod
    def forward(
        ctx: Any, maps_Bnc: Tensor, first_V: Tensor, second_V: Tensor, lambda_V: Tensor
    ) -> Tensor:
        positions, channels = maps_Bnc.shape[1:]
        # Ranks count down, so that the first of equal maxima has the largest.
        rank_n1 = torch.arange(positions, 0, -1, device=maps_Bnc.device)[:, None]
        rank_n1 = rank_n1.to(torch.uint8 if positions < 256 else torch.int32)
        pooled_Vc = maps_Bnc.new_empty(len(first_V), channels)
        where_Vc = rank_n1.new_empty(pooled_Vc.shape)
        buffers: list[Tensor] = []  # allocation per chunk would cost more than the arithmetic
        for rows in _split_into_chunks(len(first_V), positions * channels, maps_Bnc.device):
            first_v, second_v = first_V[rows], second_V[rows]
            if not buffers:
                shape = (len(first_v), positions, channels)
                buffers = [maps_Bnc.new_empty(shape), maps_Bnc.new_empty(shape)]
                buffers.append(torch.empty(shape, dtype=torch.bool, device=maps_Bnc.device))
            mixed, other, at_maximum = (buffer[: len(first_v)] for buffer in buffers)
            torch.index_select(maps_Bnc, 0, second_v, out=mixed)
            torch.index_select(maps_Bnc, 0, first_v, out=other)
            mixed.lerp_(other, lambda_V[rows, None, None])
            torch.amax(mixed, dim=1, out=pooled_Vc[rows])
            # A maximum with indices takes four times as long as these two steps.
            torch.eq(mixed, pooled_Vc[rows, None], out=at_maximum)
            ranked = at_maximum.view(torch.uint8).to(rank_n1.dtype).mul_(rank_n1)
            torch.amax(ranked, dim=1, out=where_Vc[rows])
        ctx.save_for_backward(first_V, second_V, lambda_V, where_Vc)
        ctx.shape = maps_Bnc.shape
        return pooled_Vc

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_Vc: Tensor) -> tuple[Tensor, None, None, None]:
        first_V, second_V, lambda_V, rank_Vc = ctx.saved_tensors
        _, positions, channels = ctx.shape
        gradient = gradient_Vc.new_zeros(ctx.shape).flatten()
        channel_c = torch.arange(channels, device=gradient.device)
        for rows in _split_into_chunks(len(first_V), 8 * channels, gradient.device):
            # NaN equals no maximum and has rank 0: any position is valid
            position_vc = (positions - rank_Vc[rows].long()).clamp_(max=positions - 1)
            inside_vc = position_vc.mul_(channels).add_(channel_c)
            weight_v1, part_vc = lambda_V[rows, None], gradient_Vc[rows]
            for source_V, share_v1 in ((first_V, weight_v1), (second_V, 1 - weight_v1)):
                entry_vc = source_V[rows, None] * (positions * channels) + inside_vc
                gradient.scatter_add_(0, entry_vc.flatten(), (share_v1 * part_vc).flatten())
        return gradient.view(ctx.shape), None, None, None


def _split_into_chunks(rows: int, elements_per_row: int, device: torch.device) -> list[slice]:
    size = max(1, CHUNK.get(device.type, CHUNK["cpu"]) // elements_per_row)
    return [slice(start, start + size) for start in range(0, rows, size)]
