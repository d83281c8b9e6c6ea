"""Forms of the generic loss of Metrix: functions of similarities and soft labels.

ℓ(a) = τ( σ⁺( Σ_u y ρ⁺(s(a, u)) ) + σ⁻( Σ_u (1 − y) ρ⁻(s(a, u)) ) )    (metrix, Eq. 7 and 9)

y is 1 for a positive of anchor a, 0 for a negative, and in between for a mix of both. A form is a
function of similarities, not of embeddings, and applies to clean and mixed examples.

Shapes: A anchors, U others (samples, proxies or mixes), with which anchors are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from dml.losses.arguments import check_finite, check_one_of, check_positive


@dataclass(frozen=True)
class Form:
    """The form of a loss, a row of Table 1 in metrix, or one of your own.

    A subclass implements `terms`. A loss with an attribute `form` can be trained by the methods
    that mix examples (`method=metrix`, `imix`, `mochi`, `proxy_synthesis`).

    Attributes:
        anchors: "samples" or "proxies".
        others: positives and negatives of an anchor: "samples" or "proxies".
    """

    anchors: ClassVar[Literal["samples", "proxies"]] = "samples"
    others: ClassVar[Literal["samples", "proxies"]] = "samples"

    def loss(self, s_AU: Tensor, y_AU: Tensor, present_AU: Tensor) -> Tensor:
        """Returns the mean of ℓ(a) over the anchors as a scalar, 0 without anchors.

        Args:
            s_AU: cosine similarities.
            y_AU: labels in [0, 1], constants.
            present_AU: mask of the entries in U(a); all others are ignored.
        """
        return self.anchor_losses(s_AU, y_AU, present_AU).sum() / max(1, len(s_AU))

    def anchor_losses(self, s_AU: Tensor, y_AU: Tensor, present_AU: Tensor) -> Tensor:
        """Returns ℓ(a) for every anchor (A)."""
        pull_A, push_A = self.terms(s_AU, y_AU * present_AU, (1 - y_AU) * present_AU)
        return pull_A + push_A

    def terms(self, s_AU: Tensor, pos_AU: Tensor, neg_AU: Tensor) -> tuple[Tensor, Tensor]:
        """Returns σ⁺(…) and σ⁻(…), the terms of positives and of negatives (both A).

        Args:
            s_AU: cosine similarities.
            pos_AU: weights y in [0, 1] of the positives; 0 for what does not count.
            neg_AU: weights 1 − y of the negatives; 0 for what does not count. The terms of an
                anchor with weights 0 alone are finite, with finite gradients, 0 for an empty sum.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class EuclideanContrastive(Form):
    """ρ⁺ = [r − m⁺]_+, ρ⁻ = [m⁻ − r]_+ with r = ‖â − û‖; σ is the mean over non-zero terms.

    Attributes:
        average: "anchors": means per anchor (0 without terms), then over anchors; "terms": means
            over the non-zero terms of all anchors, as in the authors' code and in
            pytorch-metric-learning.
    """

    margin: float
    positive_margin: float
    average: str = "anchors"

    def loss(self, s_AU: Tensor, y_AU: Tensor, present_AU: Tensor) -> Tensor:
        """See `Form.loss`."""
        if self.average == "anchors":
            return super().loss(s_AU, y_AU, present_AU)
        pull_AU, push_AU = self._hinges(s_AU, y_AU * present_AU, (1 - y_AU) * present_AU)
        both_2N = torch.stack([pull_AU.flatten(), push_AU.flatten()])
        return mean_over_non_zero(both_2N).sum()

    def terms(self, s_AU: Tensor, pos_AU: Tensor, neg_AU: Tensor) -> tuple[Tensor, Tensor]:
        """See `Form.terms`."""
        pull_AU, push_AU = self._hinges(s_AU, pos_AU, neg_AU)
        return mean_over_non_zero(pull_AU), mean_over_non_zero(push_AU)

    def _hinges(self, s_AU: Tensor, pos_AU: Tensor, neg_AU: Tensor) -> tuple[Tensor, Tensor]:
        r_AU = distance(s_AU)
        pull_AU = pos_AU * (r_AU - self.positive_margin).relu()
        return pull_AU, neg_AU * (self.margin - r_AU).relu()


@dataclass(frozen=True)
class CosineContrastive(Form):
    """ρ⁺ = −s, ρ⁻ = [s − m]_+; σ is the sum (metrix, Eq. 1)."""

    margin: float

    def terms(self, s_AU: Tensor, pos_AU: Tensor, neg_AU: Tensor) -> tuple[Tensor, Tensor]:
        """See `Form.terms`."""
        return -(pos_AU * s_AU).sum(dim=1), (neg_AU * (s_AU - self.margin).relu()).sum(dim=1)


@dataclass(frozen=True)
class LiftedStructure(Form):
    """[ log Σ y e^−s + log Σ (1 − y) e^(s − m) ]_+ ."""

    margin: float

    def anchor_losses(self, s_AU: Tensor, y_AU: Tensor, present_AU: Tensor) -> Tensor:
        """See `Form.anchor_losses`."""
        return super().anchor_losses(s_AU, y_AU, present_AU).relu()

    def terms(self, s_AU: Tensor, pos_AU: Tensor, neg_AU: Tensor) -> tuple[Tensor, Tensor]:
        """See `Form.terms`."""
        return log_sum(pos_AU, -s_AU), log_sum(neg_AU, s_AU - self.margin)


@dataclass(frozen=True)
class BinomialDeviance(Form):
    """log(1 + Σ y e^(−β(s − m))) + log(1 + Σ (1 − y) e^(γ(s − m)))."""

    beta: float
    gamma: float
    margin: float

    def terms(self, s_AU: Tensor, pos_AU: Tensor, neg_AU: Tensor) -> tuple[Tensor, Tensor]:
        """See `Form.terms`."""
        return (
            log_one_plus_sum(pos_AU, -self.beta * (s_AU - self.margin)),
            log_one_plus_sum(neg_AU, self.gamma * (s_AU - self.margin)),
        )


@dataclass(frozen=True)
class MultiSimilarity(BinomialDeviance):
    """Binomial deviance with factors 1/β and 1/γ of the terms (metrix, Eq. 2)."""

    def terms(self, s_AU: Tensor, pos_AU: Tensor, neg_AU: Tensor) -> tuple[Tensor, Tensor]:
        """See `Form.terms`."""
        pull_A, push_A = super().terms(s_AU, pos_AU, neg_AU)
        return pull_A / self.beta, push_A / self.gamma


@dataclass(frozen=True)
class ProxyAnchor(Form):
    """log(1 + Σ y e^(−β(s − m))) and log(1 + Σ (1 − y) e^(γ(s + m))), as in its authors' code.

    The first term is averaged over the anchors with a positive, the second over all anchors.
    """

    anchors: ClassVar[Literal["samples", "proxies"]] = "proxies"
    beta: float
    gamma: float
    margin: float

    def loss(self, s_AU: Tensor, y_AU: Tensor, present_AU: Tensor) -> Tensor:
        """See `Form.loss`."""
        pos_AU = y_AU * present_AU
        pull_A, push_A = self.terms(s_AU, pos_AU, (1 - y_AU) * present_AU)
        with_positive = (pos_AU > 0).any(dim=1).sum().clamp_min(1)
        return pull_A.sum() / with_positive + push_A.sum() / max(1, len(push_A))

    def terms(self, s_AU: Tensor, pos_AU: Tensor, neg_AU: Tensor) -> tuple[Tensor, Tensor]:
        """See `Form.terms`."""
        return (
            log_one_plus_sum(pos_AU, -self.beta * (s_AU - self.margin)),
            log_one_plus_sum(neg_AU, self.gamma * (s_AU + self.margin)),
        )


@dataclass(frozen=True)
class NCA(Form):
    """−log Σ y e^(κs) + log Σ (1 − y) e^(κs), averaged over the anchors with a positive.

    Attributes:
        scale: κ, 1 in the table, 1/T for ProxyNCA++.
        positives_below: whether the second sum includes the positives, as in a softmax.
    """

    scale: float
    positives_below: bool = False

    def loss(self, s_AU: Tensor, y_AU: Tensor, present_AU: Tensor) -> Tensor:
        """See `Form.loss`."""
        with_positive_A = (y_AU * present_AU > 0).any(dim=1)
        losses_A = self.anchor_losses(s_AU, y_AU, present_AU)
        return (losses_A * with_positive_A).sum() / with_positive_A.sum().clamp_min(1)

    def terms(self, s_AU: Tensor, pos_AU: Tensor, neg_AU: Tensor) -> tuple[Tensor, Tensor]:
        """See `Form.terms`."""
        below_AU = pos_AU + neg_AU if self.positives_below else neg_AU
        return -log_sum(pos_AU, self.scale * s_AU), log_sum(below_AU, self.scale * s_AU)


@dataclass(frozen=True)
class ProxyNCA(NCA):
    """NCA with proxies as positives and negatives."""

    others: ClassVar[Literal["samples", "proxies"]] = "proxies"


def make_contrastive(
    margin: float, positive_margin: float = 0.0, form: str = "euclidean", average: str = "anchors"
) -> Form:
    """Returns the Euclidean or the cosine form of contrastive, with checked arguments.

    Raises:
        ValueError: an argument is out of range; the message names it.
    """
    check_one_of("form", form, ("euclidean", "cosine"))
    check_finite("margin", margin)
    check_finite("positive_margin", positive_margin)
    if form == "euclidean":
        return EuclideanContrastive(margin, positive_margin, average)
    if positive_margin:
        raise ValueError("positive_margin must be 0: the cosine form has none")
    return CosineContrastive(margin)


def check_exponents(beta: float, gamma: float, margin: float) -> dict[str, float]:
    """Returns the checked arguments of a form with two exponents.

    Raises:
        ValueError: an argument is out of range; the message names it.
    """
    return {
        "beta": check_positive("beta", beta),
        "gamma": check_positive("gamma", gamma),
        "margin": check_finite("margin", margin),
    }


def check_terms(form: Form) -> None:
    """Tries a form on similarities of three anchors, of which the last is compared with nothing.

    Raises:
        ValueError: its terms fail, are not two tensors with a finite number per anchor, or have
            gradients that are not finite.
    """
    name = f"{type(form).__name__}.terms"
    s_AU = torch.tensor([[1.0, 0.5, -1.0], [0.2, 0.0, 0.9], [0.1, 0.2, 0.3]], requires_grad=True)
    pos_AU = torch.tensor([[1.0, 0.3, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    neg_AU = torch.tensor([[0.0, 0.7, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    try:
        with torch.enable_grad():
            pull_A, push_A = form.terms(s_AU, pos_AU, neg_AU)
            shapes = [list(pull_A.shape), list(push_A.shape)]
            (gradient_AU,) = torch.autograd.grad((pull_A + push_A).sum(), s_AU)
    except Exception as error:  # of any class, by a custom form
        reason = f"{type(error).__name__}: {error}".splitlines()[0].removesuffix(": ")
        raise ValueError(f"{name} fails ({reason})") from error
    if shapes != [[3], [3]]:
        raise ValueError(
            f"{name} must return two tensors with a number per anchor; for 3 anchors it returned "
            f"shapes {shapes[0]} and {shapes[1]}"
        )
    for value in (pull_A, push_A, gradient_AU):
        if not value.isfinite().all():
            raise ValueError(
                f"{name} must be finite, with finite gradients, also for an anchor with weights 0"
            )


def distance(s: Tensor) -> Tensor:
    """Returns √(2 − 2s), the distance of unit vectors, elementwise.

    Distances below the rounding error, about 7e-4 in float32, are 0 without gradient.
    """
    squared = 2 - 2 * s
    real = squared > 4 * torch.finfo(s.dtype).eps
    return torch.where(real, torch.where(real, squared, 1).sqrt(), 0)


def mean_over_non_zero(terms_AU: Tensor) -> Tensor:
    """Returns the mean of each row's non-zero terms, 0 if there are none (A)."""
    return terms_AU.sum(dim=1) / (terms_AU > 0).sum(dim=1).clamp_min(1)


def log_sum(weight_AU: Tensor, exponent_AU: Tensor) -> Tensor:
    """Returns log Σ w e^x of each row, 0 if all weights are 0 (A)."""
    some_A = (weight_AU > 0).any(dim=1)
    return torch.where(some_A, _log_weighted(weight_AU, exponent_AU, some_A).logsumexp(dim=1), 0)


def log_one_plus_sum(weight_AU: Tensor, exponent_AU: Tensor) -> Tensor:
    """Returns log(1 + Σ w e^x) of each row (A)."""
    some_A = (weight_AU > 0).any(dim=1)
    logs_A = _log_weighted(weight_AU, exponent_AU, some_A).logsumexp(dim=1)
    return torch.where(some_A, torch.nn.functional.softplus(logs_A), 0)


def _log_weighted(weight_AU: Tensor, exponent_AU: Tensor, some_A: Tensor) -> Tensor:
    """Returns log(w e^x); zeros for an empty row, since a row of −∞ has gradient NaN."""
    weighted_AU = exponent_AU + weight_AU.log()
    return torch.where(some_A[:, None], weighted_AU, 0)
