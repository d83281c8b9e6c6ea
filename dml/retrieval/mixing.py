"""Whether mixed embeddings act as positives or as negatives (Metrix).

Shapes: L similarities of anchors and mixed embeddings.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dml.retrieval.inputs import check_counts


def positivity(derivatives: Tensor, lambdas: Tensor, bins: int = 20) -> Tensor:
    """Returns the share of mixed embeddings that act as positives, by λ (Metrix, Fig. 2).

    A mixed embedding v acts as a positive for anchor a if ∂ℓ̃(a)/∂s(a, v) ≤ 0.

    Args:
        derivatives: L values of ∂ℓ̃/∂s.
        lambdas: L interpolation factors in [0, 1]; 1 is the positive.
        bins: number of equal intervals of λ.

    Returns:
        Shares, 0–1, per interval; NaN for intervals without any λ.

    Raises:
        ValueError: shapes differ, a λ lies outside [0, 1], or `bins` is not a positive integer.
    """
    _check_lambdas(derivatives, lambdas)
    return _share_by_lambda(derivatives <= 0, lambdas, bins)


def predicted_positivity(
    similarities: Tensor,
    lambdas: Tensor,
    *,
    beta: float,
    gamma: float,
    margin: float,
    bins: int = 20,
) -> Tensor:
    """Returns the `positivity` predicted for multi-similarity (Metrix, Eq. 11).

    F_λ(ln(λ/(1−λ))/(β+γ) + m), where the derivative for a single mix changes its sign.

    Args:
        similarities: L values s(a, v) of anchors and mixed embeddings; F_λ is their distribution.
        lambdas: L interpolation factors in [0, 1].
        beta: exponent of the positives, β > 0.
        gamma: exponent of the negatives, γ > 0.
        margin: m.
        bins: number of equal intervals of λ.

    Returns:
        Shares, 0–1, per interval; NaN for intervals without any λ.

    Raises:
        ValueError: shapes differ, a λ lies outside [0, 1], or `bins` is not a positive integer.
    """
    _check_lambdas(similarities, lambdas)
    turning_point = torch.logit(lambdas.double()) / (beta + gamma) + margin
    return _share_by_lambda(similarities.double() <= turning_point, lambdas, bins)


def _check_lambdas(values: Tensor, lambdas: Tensor) -> None:
    if values.shape != lambdas.shape:
        raise ValueError(
            f"lambdas must have shape {tuple(values.shape)} like the values, got"
            f" {tuple(lambdas.shape)}"
        )
    if not bool(((lambdas >= 0) & (lambdas <= 1)).all()):
        raise ValueError("lambdas must lie in [0, 1]")


def _share_by_lambda(event: Tensor, lambdas: Tensor, bins: int) -> Tensor:
    check_counts([bins], "bins")
    number = (lambdas.double() * bins).long().clamp_(max=bins - 1).flatten()
    hits = torch.bincount(number, weights=event.double().flatten(), minlength=bins)
    return hits / torch.bincount(number, minlength=bins)
