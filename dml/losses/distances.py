"""Clipping and Euclidean distances of a batch to many references, lean in time and memory.

Shapes: B images in a batch, N rows, D embedding dimensions, R references, T rows of a tile.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dml.losses.cosine import unit_rows


def _tile(x: Tensor) -> int:
    """Rows at a time: temporaries that stay in a CPU's cache, and few launches on a GPU."""
    return max(1, (2**26 if x.is_cuda else 2**20) // x.shape[1])


class _ClipToBall(torch.autograd.Function):
    """Keeps the result and its rows' lengths; autograd's own chain would keep seven matrices."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor) -> Tensor:
        clipped_ND = torch.empty_like(x_ND)
        norms = []
        for x_TD, out_TD in zip(
            x_ND.split(_tile(x_ND)), clipped_ND.split(_tile(x_ND)), strict=True
        ):
            unit_TD, norm_T1 = unit_rows(x_TD)
            torch.where(norm_T1 > 1, unit_TD, x_TD, out=out_TD)
            norms.append(norm_T1)
        ctx.save_for_backward(clipped_ND, torch.cat(norms))
        return clipped_ND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_ND: Tensor) -> Tensor:
        clipped_ND, norm_N1 = ctx.saved_tensors
        grad_ND = torch.empty_like(clipped_ND)
        tile = _tile(clipped_ND)
        for start in range(0, len(g_ND), tile):
            rows = slice(start, start + tile)
            g_TD, u_TD, norm_T1 = g_ND[rows], clipped_ND[rows], norm_N1[rows]
            along_T1 = (g_TD * u_TD).sum(dim=1, keepdim=True)
            turned_TD = torch.addcmul(g_TD, u_TD, along_T1, value=-1).div_(norm_T1)
            torch.where(norm_T1 > 1, turned_TD, g_TD, out=grad_ND[rows])
        return grad_ND


def clip_to_ball(x_ND: Tensor) -> Tensor:
    """Returns x / max(1, ‖x‖): rows inside the unit ball stay as they are."""
    clipped: Tensor = _ClipToBall.apply(x_ND)
    return clipped


class _Distances(torch.autograd.Function):
    """r² = ‖x‖² + ‖y‖² − 2⟨x, y⟩ by float64 products, tile by tile."""

    @staticmethod
    def forward(ctx: Any, x_BD: Tensor, y_RD: Tensor) -> Tensor:
        r_BR = x_BD.new_empty(len(x_BD), len(y_RD))
        x64_BD = x_BD.double()
        x64_B1 = x64_BD.square().sum(dim=1, keepdim=True)
        tile = _tile(y_RD)
        for start in range(0, len(y_RD), tile):
            y64_TD = y_RD[start : start + tile].double()
            r_BT = torch.addmm(y64_TD.square().sum(dim=1), x64_BD, y64_TD.T, alpha=-2)
            r_BR[:, start : start + tile] = r_BT.add_(x64_B1).clamp_min_(0).sqrt_()
        ctx.save_for_backward(x_BD, y_RD, r_BR)
        return r_BR

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g_BR: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x_BD, y_RD, r_BR = ctx.saved_tensors
        needs_x, needs_y = ctx.needs_input_grad
        x64_BD = x_BD.double()
        grad_x = torch.zeros_like(x64_BD) if needs_x else None
        grad_y = torch.empty_like(y_RD) if needs_y else None
        tile = _tile(y_RD)
        for start in range(0, len(y_RD), tile):
            part = slice(start, start + tile)
            # at distance zero every direction is as good as any other: none is taken
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
    """Euclidean distances B×R, exact to rounding also where they are small.

    float32 goes through float64 matrix products, with an error of about 1e-8: torch.cdist without
    products is ten times slower on a CPU against the proxies of Stanford Online Products, and its
    backward pass on a GPU holds B×R×D numbers. float64 goes to torch.cdist.
    """
    if x_BD.dtype == torch.float64:
        return torch.cdist(x_BD, y_RD, compute_mode="donot_use_mm_for_euclid_dist")
    result: Tensor = _Distances.apply(x_BD, y_RD)
    return result
