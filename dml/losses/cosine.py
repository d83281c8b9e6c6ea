"""Cosine similarities between a batch and references, or the rows of a large matrix.

Shapes: B images, D embedding dimensions, R references, C rows of the matrix (mean fields, proxies).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dml.losses.custom_backward import first_order_backward

EPSILON = 1e-12  # minimum of a norm as divisor, as in torch's F.normalize
LARGE = 2.0**50  # vectors with larger components are scaled down before the norm is computed


def unit_rows(x_BD: Tensor) -> tuple[Tensor, Tensor]:
    """Returns rows of length 1 (B×D; a zero row stays zero) and their lengths (B×1)."""
    largest_B1 = x_BD.detach().abs().amax(dim=1, keepdim=True)
    scale_B1 = largest_B1.clamp_min(LARGE).div_(LARGE)  # 1 unless squares could overflow
    scaled_BD = x_BD / scale_B1
    norm_B1 = torch.linalg.vector_norm(scaled_BD, dim=1, keepdim=True).clamp_min(EPSILON)
    return scaled_BD / norm_B1, scale_B1 * norm_B1


def pair_similarity(x_BD: Tensor, y_RD: Tensor) -> Tensor:
    """Returns x̂_b · ŷ_r for all rows (B×R) of any length, including zero."""
    return unit_rows(x_BD)[0] @ unit_rows(y_RD)[0].T


class _Cosine(torch.autograd.Function):
    """x̂ m̂ᵀ without storing m̂: the C×D matrix is read once forward and twice backward."""

    @staticmethod
    def forward(ctx: Any, x_BD: Tensor, m_CD: Tensor) -> Tensor:
        u_BD, x_norm_B1 = unit_rows(x_BD)
        m_norm_C = torch.linalg.vector_norm(m_CD, dim=1).clamp_min(EPSILON)
        s_BC = (u_BD @ m_CD.T) / m_norm_C
        ctx.save_for_backward(u_BD, x_norm_B1, m_CD, m_norm_C, s_BC)
        return s_BC

    @staticmethod
    @first_order_backward
    def backward(ctx: Any, g_BC: Tensor) -> tuple[Tensor | None, Tensor | None]:
        u_BD, x_norm_B1, m_CD, m_norm_C, s_BC = ctx.saved_tensors
        grad_x = grad_m = None
        h_BC = g_BC / m_norm_C
        along_BC = g_BC * s_BC  # the component along a vector has no effect
        if ctx.needs_input_grad[0]:
            stretch_B1 = along_BC.sum(dim=1, keepdim=True).mul_(x_norm_B1 > EPSILON)
            grad_x = (h_BC @ m_CD).addcmul_(u_BD, stretch_B1, value=-1).div_(x_norm_B1)
        if ctx.needs_input_grad[1]:
            stretch_C = along_BC.sum(dim=0).div_(m_norm_C.square()).mul_(m_norm_C > EPSILON)
            grad_m = (h_BC.T @ u_BD).addcmul_(m_CD, stretch_C[:, None], value=-1)
        return grad_x, grad_m


def cosine_similarity(x_BD: Tensor, m_CD: Tensor) -> Tensor:
    """Returns x̂_b · m̂_c for all rows (B×C), in the wider precision, without a copy of m.

    A vector shorter than 1e-12 is divided by 1e-12; a zero vector has similarity 0.
    """
    dtype = torch.promote_types(x_BD.dtype, m_CD.dtype)
    similarity: Tensor = _Cosine.apply(x_BD.to(dtype), m_CD.to(dtype))
    return similarity
