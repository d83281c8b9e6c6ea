"""Generic losses of Metrix with samples as anchors, positives and negatives (metrix, Table 1).

Shapes: B images in a batch, D embedding dimensions, R references.
"""

from __future__ import annotations

import inspect

from torch import Tensor

from dml.losses.arguments import check_finite
from dml.losses.cosine import pair_similarity
from dml.losses.generic import forms
from dml.losses.metric_loss import PairLoss, Pairs


class GenericPairLoss(PairLoss):
    """A generic loss with samples as anchors, positives and negatives.

    Attributes:
        form: the terms it sums (`dml.losses.generic.forms`).
    """

    def __init__(self, form: forms.Form) -> None:
        super().__init__()
        self.form = form

    def pair_loss(self, x_BD: Tensor, ref_RD: Tensor, pairs: Pairs) -> Tensor:
        """Returns the loss of checked arguments, float32 or float64."""
        s_BR = pair_similarity(x_BD, ref_RD)
        positive_BR, negative_BR = pairs.masks()
        return self.form.loss(s_BR, positive_BR.to(s_BR.dtype), positive_BR | negative_BR)

    def extra_repr(self) -> str:
        """Returns the hyperparameters, which the form holds."""
        names = [one for one in inspect.signature(type(self)).parameters if hasattr(self.form, one)]
        return ", ".join(f"{one}={getattr(self.form, one)!r}" for one in names)


class ContrastiveLoss(GenericPairLoss):
    """Contrastive, per anchor: mean of its non-zero [r − m⁺]_+ plus that of its [m − r]_+.

    The loss of pytorch-metric-learning takes these means over all pairs of a batch, which is equal
    only if all anchors have equally many non-zero terms.

    Args:
        margin: m; Euclidean distance of unit vectors, for the cosine form a similarity.
        positive_margin: m⁺, a Euclidean distance.
        form: "euclidean", or "cosine": Σ −s + Σ [s − m]_+ as the paper prints it.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self, margin: float = 0.5, positive_margin: float = 0.0, form: str = "euclidean"
    ) -> None:
        super().__init__(forms.make_contrastive(margin, positive_margin, form))

    def extra_repr(self) -> str:
        """Returns the hyperparameters."""
        form = "cosine" if isinstance(self.form, forms.CosineContrastive) else "euclidean"
        return f"{super().extra_repr()}, form={form!r}"


class LiftedStructureLoss(GenericPairLoss):
    """Lifted structure in the form of Hermans et al. (2017) on similarities.

    Args:
        margin: m, a cosine similarity; the paper prints none.

    Raises:
        ValueError: the margin is not a finite number.
    """

    def __init__(self, margin: float = 0.5) -> None:
        super().__init__(forms.LiftedStructure(check_finite("margin", margin)))


class BinomialDevianceLoss(GenericPairLoss):
    """Binomial deviance (Yi et al., 2014) with sums inside the logarithms.

    Args:
        beta: β > 0, exponent of the positives.
        gamma: γ > 0, exponent of the negatives.
        margin: m, a cosine similarity.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(self, beta: float = 2.0, gamma: float = 50.0, margin: float = 0.5) -> None:
        super().__init__(forms.BinomialDeviance(**forms.check_exponents(beta, gamma, margin)))


class MultiSimilarityLoss(GenericPairLoss):
    """Multi-similarity without mining, equal to pytorch-metric-learning's.

    Args:
        beta: β > 0, exponent of the positives.
        gamma: γ > 0, exponent of the negatives.
        margin: m, a cosine similarity.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(self, beta: float = 18.0, gamma: float = 75.0, margin: float = 0.77) -> None:
        super().__init__(forms.MultiSimilarity(**forms.check_exponents(beta, gamma, margin)))


class NCALoss(GenericPairLoss):
    """−log Σ_positives e^s + log Σ_negatives e^s, over the anchors that have a positive.

    Unlike the original, positives are not in the second sum, and s is the cosine similarity.
    """

    def __init__(self) -> None:
        super().__init__(forms.NCA(scale=1.0))
