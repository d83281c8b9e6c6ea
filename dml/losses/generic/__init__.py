"""The generic losses of Metrix (metrix, Table 1), for clean and for mixed examples.

Proxy Anchor and ProxyNCA (without the positive in the denominator) have proxies, the others are
pair losses; ProxyNCA++ is the class in `dml.losses`. `forms` defines each loss by terms of
similarities and soft labels.

Shapes: B images in a batch, D embedding dimensions, R references, C classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dml.losses.arguments import check_finite
from dml.losses.cosine import cosine_similarity, pair_similarity, unit_rows
from dml.losses.generic import forms
from dml.losses.metric_loss import ClassificationLoss, PairLoss, Pairs
from dml.losses.proxy_nca import ProxyNCALoss, ProxyNCAPlusPlusLoss

__all__ = [
    "BinomialDevianceLoss",
    "ContrastiveLoss",
    "GenericPairLoss",
    "GenericProxyLoss",
    "LiftedStructureLoss",
    "MultiSimilarityLoss",
    "NCALoss",
    "OriginalProxyNCALoss",
    "ProxyAnchorLoss",
    "ProxyNCAPlusPlusLoss",
    "compute_proxy_loss",
    "find_generic_form",
]


class GenericPairLoss(PairLoss):
    """A generic loss with samples as anchors, positives and negatives.

    Attributes:
        form: the terms of the loss (`dml.losses.generic.forms`).
    """

    def __init__(self, form: forms.Form) -> None:
        super().__init__()
        self.form = form

    def pair_loss(self, x_BD: Tensor, ref_RD: Tensor, pairs: Pairs) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64)."""
        s_BR = self.similarity(x_BD, ref_RD)
        positive_BR, negative_BR = pairs.masks()
        return self.form.loss(s_BR, positive_BR.to(s_BR.dtype), positive_BR | negative_BR)

    def similarity(self, x_BD: Tensor, ref_RD: Tensor) -> Tensor:
        """Returns the cosine similarities of all pairs (B×R)."""
        return pair_similarity(x_BD, ref_RD)


class ContrastiveLoss(GenericPairLoss):
    """Contrastive, per anchor: mean of non-zero [r − m⁺]_+ plus mean of non-zero [m − r]_+.

    pytorch-metric-learning averages over all pairs of a batch, which is equal only if all anchors
    have equally many non-zero terms.

    Args:
        margin: m, a Euclidean distance of unit vectors; a similarity for the form "cosine".
        positive_margin: m⁺, a Euclidean distance.
        form: "euclidean", or "cosine": Σ −s + Σ [s − m]_+, as printed in the paper.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self, margin: float = 0.5, positive_margin: float = 0.0, form: str = "euclidean"
    ) -> None:
        super().__init__(forms.make_contrastive(margin, positive_margin, form))

    def similarity(self, x_BD: Tensor, ref_RD: Tensor) -> Tensor:
        """Returns the cosine similarities of all pairs (B×R)."""
        if ref_RD is not x_BD or isinstance(self.form, forms.CosineContrastive):
            return super().similarity(x_BD, ref_RD)
        unit_BD = unit_rows(x_BD)[0]  # once, which changes the last digit of gradients
        return unit_BD @ unit_BD.T


class LiftedStructureLoss(GenericPairLoss):
    """Lifted structure in the form of Hermans et al. (2017), with similarities.

    Args:
        margin: m, a cosine similarity; the paper does not print a value.

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
    """Multi-similarity without mining, equal to the loss of pytorch-metric-learning.

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
    """NCA: −log Σ_positives e^s + log Σ_negatives e^s, for anchors with a positive.

    Unlike in the original, the second sum excludes positives, and s is the cosine similarity.
    """

    def __init__(self) -> None:
        super().__init__(forms.NCA(scale=1.0))


class GenericProxyLoss(ClassificationLoss):
    """A generic loss with proxies as anchors, or as positives and negatives.

    Attributes:
        form: the terms of the loss (`dml.losses.generic.forms`).
        proxies: C×D, the only parameter; normalized in the loss.
    """

    def __init__(self, num_classes: int, embedding_size: int, form: forms.Form) -> None:
        super().__init__(num_classes, embedding_size)
        self.form = form
        self.proxies = nn.Parameter(torch.empty(num_classes, embedding_size))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def batch_loss(self, x_BD: Tensor, labels_B: Tensor, weight_B: Tensor | None) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64)."""
        return compute_proxy_loss(self.form, x_BD, labels_B, self.proxies, weight_B)


class ProxyAnchorLoss(GenericProxyLoss):
    """Proxy Anchor with β = γ = alpha, equal to the loss of pytorch-metric-learning.

    Args:
        num_classes: C.
        embedding_size: D.
        margin: m, a cosine similarity.
        alpha: β = γ > 0.

    Raises:
        ValueError: an argument is out of range.
    """

    mined_images = "all"

    def __init__(
        self, num_classes: int, embedding_size: int, margin: float = 0.1, alpha: float = 32.0
    ) -> None:
        form = forms.ProxyAnchor(**forms.check_exponents(alpha, alpha, margin))
        super().__init__(num_classes, embedding_size, form)
        self.margin, self.alpha = margin, alpha


class OriginalProxyNCALoss(GenericProxyLoss):
    """ProxyNCA as printed (metrix, Table 1): −s⁺ + log Σ_negatives e^s.

    Args:
        num_classes: C, at least 2, so that there are negative proxies.
        embedding_size: D.

    Raises:
        ValueError: an argument is out of range.
    """

    mined_images = "anchors"

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__(num_classes, embedding_size, forms.ProxyNCA(scale=1.0))


def compute_proxy_loss(
    form: forms.Form,
    x_BD: Tensor,
    labels_B: Tensor,
    proxies_CD: Tensor,
    weight_B: Tensor | None = None,
) -> Tensor:
    """Returns the loss of samples and proxies, with either samples or proxies as anchors.

    Args:
        form: a form with proxies.
        x_BD: embeddings, float32 or float64.
        labels_B: labels in 0..C−1.
        proxies_CD: one proxy per class.
        weight_B: w, weights of the samples in [0, 1]; None: all 1. The loss of a sample is
            multiplied by w; with proxies as anchors, its exponentials are multiplied by
            e^(w − 1), as in pytorch-metric-learning.
    """
    s_BC = cosine_similarity(x_BD, proxies_CD)
    y_BC = torch.zeros_like(s_BC).scatter_(1, labels_B[:, None], 1)
    present_BC = torch.ones_like(y_BC, dtype=torch.bool)
    if form.anchors == "proxies":
        if weight_B is not None:
            present_BC = (weight_B - 1).exp()[:, None] * present_BC
        return form.loss(s_BC.T, y_BC.T, present_BC.T)
    if weight_B is not None:
        return (weight_B * form.anchor_losses(s_BC, y_BC, present_BC)).mean()
    return form.loss(s_BC, y_BC, present_BC)


def find_generic_form(loss: Any) -> forms.Form:
    """Returns the generic form of a loss, with the hyperparameters of the loss.

    Proxies are in the attribute `proxies` of the loss.

    Args:
        loss: a loss with an attribute `form`, such as the losses of `dml.losses.generic` or one of
            your own; ProxyNCA or ProxyNCA++ of `dml.losses`; ContrastiveLoss, MultiSimilarityLoss
            or ProxyAnchorLoss of `dml.losses.baselines` or pytorch-metric-learning.

    Raises:
        ValueError: the loss has no generic form, one that fails, or an option that the form cannot
            express.
    """
    form = getattr(loss, "form", None)
    if isinstance(form, forms.Form):
        _check_form(loss, form)
        return form
    if isinstance(form, type) and issubclass(form, forms.Form):
        raise ValueError(f"its form is the class {form.__name__}; it must be an object of it")
    if isinstance(loss, ProxyNCALoss | ProxyNCAPlusPlusLoss):  # the positive is in the denominator
        return forms.ProxyNCA(loss.scale, positives_below=True)
    return _find_form_of_pml(loss)


def _check_form(loss: Any, form: forms.Form) -> None:
    """Raises ValueError if a form outside of this package fails, or lacks its proxies."""
    if type(form).__module__.startswith("dml."):
        return
    forms.check_terms(form)
    has_proxies = "proxies" in (form.anchors, form.others)
    if has_proxies and not isinstance(getattr(loss, "proxies", None), Tensor):
        name = type(loss).__name__
        raise ValueError(f"its form has proxies, and {name} has no parameter `proxies`")


def _find_form_of_pml(loss: Any) -> forms.Form:
    # Imported late: dml.losses works without pytorch-metric-learning.
    from pytorch_metric_learning import losses as pml

    from dml.losses import baselines

    kind = type(loss)
    if kind in (pml.ContrastiveLoss, baselines.ContrastiveLoss):
        _check_default_options(loss, euclidean=True)
        return forms.make_contrastive(loss.neg_margin, loss.pos_margin, average="terms")
    if kind in (pml.MultiSimilarityLoss, baselines.MultiSimilarityLoss):
        _check_default_options(loss)
        return forms.MultiSimilarity(**forms.check_exponents(loss.alpha, loss.beta, loss.base))
    if kind in (pml.ProxyAnchorLoss, baselines.ProxyAnchorLoss):
        _check_default_options(loss)
        return forms.ProxyAnchor(**forms.check_exponents(loss.alpha, loss.alpha, loss.margin))
    raise ValueError(f"{kind.__name__} is not additive over positives and negatives")


def _check_default_options(loss: Any, euclidean: bool = False) -> None:
    """Raises ValueError unless distance and reducer are the loss's defaults."""
    from pytorch_metric_learning.distances import CosineSimilarity, LpDistance
    from pytorch_metric_learning.reducers import MultipleReducers

    d = loss.distance
    if euclidean:
        is_default = type(d) is LpDistance and d.p == 2 and d.power == 1 and d.normalize_embeddings
    else:
        is_default = type(d) is CosineSimilarity
    if not is_default:
        raise ValueError(f"{type(loss).__name__} with distance {type(d).__name__} has no such form")
    regularizers = loss.all_regularization_loss_names()
    for term in loss.sub_loss_names():
        reducer = loss.reducer
        if type(reducer) is MultipleReducers:  # terms without a reducer take the default one
            reducer = dict(reducer.reducers).get(term, reducer.default_reducer)
        if term not in regularizers and type(reducer) is not type(loss.get_default_reducer()):
            raise ValueError(
                f"{type(loss).__name__} with reducer {type(reducer).__name__} has no such form"
            )
