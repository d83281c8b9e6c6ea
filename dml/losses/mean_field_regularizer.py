"""Sums over all pairs of mean fields, tile by tile.

Shapes: C rows, D columns, T rows of a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dml.losses.cosine import EPSILON, unit_rows
from dml.losses.custom_backward import first_order_backward

# Maps similarities s to (φ(s), φ'(s)), elementwise.
PairTerm = Callable[[Tensor], tuple[Tensor, Tensor]]


class _RowPairSum(torch.autograd.Function):
    """Computes the gradient together with the value, so that no similarity is computed twice."""

    @staticmethod
    def forward(ctx: Any, m_CD: Tensor, pair_term: PairTerm, with_gradient: bool) -> Tensor:
        u_CD, norm_C1 = unit_rows(m_CD)
        total = m_CD.new_zeros(())
        grad_CD = torch.zeros_like(u_CD) if with_gradient else None
        tile = 4096 if m_CD.is_cuda else 1024
        starts = range(0, len(u_CD), tile)
        for a in starts:
            u_TD = u_CD[a : a + tile]
            for b in range(a, len(u_CD), tile):  # the other triangle mirrors this one
                v_TD = u_CD[b : b + tile]
                value_TT, slope_TT = pair_term(u_TD @ v_TD.T)
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
    @first_order_backward
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (grad_CD,) = ctx.saved_tensors
        return grad_CD * g, None, None


@torch.compiler.disable  # a loop over tiles gains nothing from being unrolled into a graph
def sum_over_row_pairs(m_CD: Tensor, pair_term: PairTerm) -> Tensor:
    """Returns the sum of φ(cos(m_c, m_c')) over ordered pairs c ≠ c'.

    Memory beside the matrix and its gradient: a few tiles, never C×C.

    Args:
        m_CD: rows of any length.
        pair_term: φ with its derivative; may overwrite the tile it is given.
    """
    with_gradient = torch.is_grad_enabled() and m_CD.requires_grad
    total: Tensor = _RowPairSum.apply(m_CD, pair_term, with_gradient)
    return total
