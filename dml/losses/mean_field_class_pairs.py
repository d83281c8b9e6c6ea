"""Sums of MFCWMS over classes and pairs of classes, from the rows of present classes only.

Shapes: C classes, P slots for present classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dml.losses.class_groups import ClassGroups, softplus
from dml.losses.custom_backward import first_order_backward


class _ClassPairSums(torch.autograd.Function):
    """Stores b = log(1 + e^x + e^y), with ∂b/∂x = e^(x − b): a third of the cost of autograd."""

    @staticmethod
    def forward(
        ctx: Any, log_pq_PC: Tensor, label_P: Tensor, occupied_P: Tensor
    ) -> tuple[Tensor, Tensor]:
        # beside a present class, an absent one has log(1 + q_cc'), and both orders count
        weight_C = torch.full_like(log_pq_PC[0], 2).index_add_(
            0, label_P, occupied_P.to(log_pq_PC.dtype), alpha=-2
        )
        with_absent = (softplus(log_pq_PC) @ weight_C).sum()

        log_pq_PP = log_pq_PC.index_select(1, label_P)
        both_PP = softplus(torch.logaddexp(log_pq_PP, log_pq_PP.T.contiguous()))
        pairs_PP = (occupied_P[:, None] & occupied_P).fill_diagonal_(False)
        ctx.save_for_backward(log_pq_PC, weight_C, label_P, log_pq_PP, both_PP, pairs_PP)
        own = softplus(log_pq_PP.diagonal()).sum()
        return own, with_absent + (both_PP * pairs_PP).sum()

    @staticmethod
    @first_order_backward
    def backward(ctx: Any, g_own: Tensor, g_pairs: Tensor) -> tuple[Tensor, None, None]:
        log_pq_PC, weight_C, label_P, log_pq_PP, both_PP, pairs_PP = ctx.saved_tensors
        slope_PP = (log_pq_PP - both_PP).exp_().mul_(pairs_PP).mul_(2 * g_pairs)
        slope_PP.diagonal().copy_(log_pq_PP.diagonal().sigmoid()).mul_(g_own)
        slope_PC = log_pq_PC.sigmoid().mul_(weight_C * g_pairs)
        return slope_PC.index_add_(1, label_P, slope_PP), None, None


def sum_over_class_pairs(log_pq_PC: Tensor, groups: ClassGroups) -> tuple[Tensor, Tensor]:
    """Returns Σ_c log(1 + p_c) and Σ_{c≠c'} log(1 + q_cc' + q_c'c), q being 0 for absent c.

    Args:
        log_pq_PC: log p_c at a present class c's own column, log q_cc' at the others.
        groups: the class of each slot.
    """
    own, pairs = _ClassPairSums.apply(log_pq_PC, groups.label, groups.occupied)
    return own, pairs
