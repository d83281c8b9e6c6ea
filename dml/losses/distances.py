"""Clipping to the unit ball, and Euclidean distances between a batch and many references.

Shapes: B images in a batch, N rows, D embedding dimensions, R references, T rows of a tile.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dml.losses.custom_backward import first_order_backward

FEW = 0.02  # share of pairs below which single pairs are cheaper than the whole tile


def _rows_per_tile(x: Tensor) -> int:
    """Returns the number of rows of a tile: it fits a CPU's cache, and occupies a GPU."""
    return max(1, (2**26 if x.is_cuda else 2**20) // x.shape[1])


def clip_to_ball(x_ND: Tensor) -> Tensor:
    """Returns x / max(1, ‖x‖): rows inside the unit ball are unchanged."""
    return x_ND / torch.linalg.vector_norm(x_ND, dim=1, keepdim=True).clamp_min(1)


def squared_distances(
    x_TD: Tensor, y_WD: Tensor, x2_T: Tensor, y2_W: Tensor, small: float = 0.0
) -> Tensor:
    """Returns ‖x − y‖² of float64 rows (T×W), from a matrix product where it is accurate enough.

    The error of ‖x‖² + ‖y‖² − 2⟨x, y⟩ for unit vectors is about 1e-15, as large as r² at r = 3e-8.
    Distances below `small` are recomputed from difference vectors, which waits for a GPU and cannot
    be compiled.

    Args:
        x_TD: rows.
        y_WD: rows; if this is `x_TD` itself, the diagonal is not recomputed.
        x2_T: squared norms of x.
        y2_W: squared norms of y.
        small: distances below this are recomputed; 0: none.
    """
    r2_TW = torch.addmm(y2_W, x_TD, y_WD.T, alpha=-2).add_(x2_T[:, None])
    if small == 0:
        return r2_TW
    small_TW = r2_TW < small**2
    if y_WD is x_TD:
        small_TW.fill_diagonal_(False)
    pairs_K2 = small_TW.nonzero()
    if len(pairs_K2) > FEW * small_TW.numel():
        return torch.cdist(x_TD, y_WD, compute_mode="donot_use_mm_for_euclid_dist").square_()
    for part_K2 in pairs_K2.split(_rows_per_tile(x_TD)):
        i_K, j_K = part_K2.unbind(dim=1)
        r2_TW[i_K, j_K] = (x_TD[i_K] - y_WD[j_K]).square_().sum(dim=1)
    return r2_TW


class _Distances(torch.autograd.Function):
    """Distances from float64 products, tile by tile."""

    @staticmethod
    def forward(ctx: Any, x_BD: Tensor, y_RD: Tensor) -> Tensor:
        tiles = []
        x64_BD = x_BD.double()
        x2_B = x64_BD.square().sum(dim=1)
        for y_TD in y_RD.split(_rows_per_tile(y_RD)):
            y64_TD = y_TD.double()
            r2_BT = squared_distances(x64_BD, y64_TD, x2_B, y64_TD.square().sum(dim=1))
            tiles.append(r2_BT.clamp_min_(0).sqrt_().to(x_BD.dtype))
        r_BR = torch.cat(tiles, dim=1)
        ctx.save_for_backward(x_BD, y_RD, r_BR)
        return r_BR

    @staticmethod
    @first_order_backward
    def backward(ctx: Any, g_BR: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x_BD, y_RD, r_BR = ctx.saved_tensors
        needs_x, needs_y = ctx.needs_input_grad
        x64_BD = x_BD.double()
        grad_x = torch.zeros_like(x64_BD) if needs_x else None
        grad_y = torch.empty_like(y_RD) if needs_y else None
        tile = _rows_per_tile(y_RD)
        for start in range(0, len(y_RD), tile):
            part = slice(start, start + tile)
            # a distance of zero has no direction: its gradient is zero
            w_BT = torch.where(r_BR[:, part] > 0, g_BR[:, part].double() / r_BR[:, part], 0)
            y64_TD = y_RD[part].double()
            if grad_x is not None:
                grad_x.addcmul_(x64_BD, w_BT.sum(dim=1, keepdim=True)).addmm_(
                    w_BT, y64_TD, alpha=-1
                )
            if grad_y is not None:
                grad_y[part] = (y64_TD * w_BT.sum(dim=0)[:, None]).addmm_(w_BT.T, x64_BD, alpha=-1)
        return None if grad_x is None else grad_x.to(x_BD.dtype), grad_y


def distances(x_BD: Tensor, y_RD: Tensor) -> Tensor:
    """Returns Euclidean distances (B×R), accurate also for small distances.

    For float32, the result comes from float64 matrix products and has an error of about 1e-8:
    torch.cdist without products is ten times slower on a CPU for the proxies of Stanford Online
    Products, and its backward pass on a GPU needs B×R×D numbers. float64 uses torch.cdist.
    """
    if x_BD.dtype == torch.float64:
        return torch.cdist(x_BD, y_RD, compute_mode="donot_use_mm_for_euclid_dist")
    if y_RD is x_BD and torch.compiler.is_compiling():
        # torch.compile does not trace a function of the same tensor twice, or traces it wrongly.
        y_RD = x_BD.view_as(x_BD)
    result: Tensor = _Distances.apply(x_BD, y_RD)
    return result
