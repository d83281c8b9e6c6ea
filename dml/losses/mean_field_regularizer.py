"""Sums over all pairs of rows of a large matrix, tile by tile.

Shapes: C rows, D columns, T rows of a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dml.losses.cosine import EPSILON, unit_rows
from dml.losses.derivatives import first_derivative

# Maps similarities s to (φ(s), φ'(s)), element by element.
Potential = Callable[[Tensor], tuple[Tensor, Tensor]]


class _RowPairSum(torch.autograd.Function):
    """Computes the gradient along with the value, so that each similarity is needed only once."""

    @staticmethod
    def forward(ctx: Any, m_CD: Tensor, potential: Potential, with_gradient: bool) -> Tensor:
        u_CD, norm_C1 = unit_rows(m_CD)
        total = m_CD.new_zeros(())
        grad_CD = torch.zeros_like(u_CD) if with_gradient else None
        tile = 4096 if m_CD.is_cuda else 1024
        starts = range(0, len(u_CD), tile)
        for a in starts:
            u_TD = u_CD[a : a + tile]
            for b in range(a, len(u_CD), tile):  # the other triangle mirrors this one
                v_TD = u_CD[b : b + tile]
                value_TT, slope_TT = potential(u_TD @ v_TD.T)
                if a == b:
                    value_TT.fill_diagonal_(0)
                    slope_TT.fill_diagonal_(0)
                total += value_TT.sum() * (1 if a == b else 2)
                if grad_CD is not None:
                    grad_CD[a : a + tile].addmm_(slope_TT, v_TD, alpha=2)
                    if a != b:
                        grad_CD[b : b + tile].addmm_(slope_TT.T, u_TD, alpha=2)
        if grad_CD is not None:
            stretch_C1 = (grad_CD * u_CD).sum(dim=1, keepdim=True)
            stretch_C1 = torch.where(norm_C1 > EPSILON, stretch_C1, 0)
            grad_CD.addcmul_(u_CD, stretch_C1, value=-1).div_(norm_C1)
            ctx.save_for_backward(grad_CD)
        return total

    @staticmethod
    @first_derivative
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (grad_CD,) = ctx.saved_tensors
        return grad_CD * g, None, None


@torch.compiler.disable  # a loop over tiles gains nothing from being unrolled into a graph
def sum_over_row_pairs(m_CD: Tensor, potential: Potential) -> Tensor:
    """Returns the sum of φ(cos(m_c, m_c')) over ordered pairs c ≠ c'.

    Memory beside the matrix and its gradient: a few tiles, never C×C.

    Args:
        m_CD: rows of any length.
        potential: φ with its derivative; gets a tile and may overwrite it.
    """
    with_gradient = torch.is_grad_enabled() and m_CD.requires_grad
    total: Tensor = _RowPairSum.apply(m_CD, potential, with_gradient)
    return total
