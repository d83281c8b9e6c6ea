"""The generic losses of Metrix as losses of their own, and the form behind a loss of elsewhere.

Shapes: B images in a batch, D embedding dimensions, C classes, R references, A anchors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dml.losses import generic_forms as forms
from dml.losses.base import ClassificationLoss, PairLoss, finite, positive
from dml.losses.cosine import cosine_similarity, pair_similarity
from dml.losses.pairwise import pair_masks


class GenericPairLoss(PairLoss):
    """A generic loss with samples as anchors, positives and negatives.

    Attributes:
        form: what it computes (`dml.losses.generic_forms`).
    """

    def __init__(self, form: forms.Form) -> None:
        super().__init__()
        self.form = form

    def pair_loss(
        self, x_BD: Tensor, labels_B: Tensor, ref_RD: Tensor, labels_R: Tensor, among_itself: bool
    ) -> Tensor:
        """Returns the loss of checked arguments, float32 or float64."""
        s_BR = pair_similarity(x_BD, ref_RD)
        positive_BR, negative_BR = pair_masks(labels_B, labels_R, among_itself)
        return self.form.loss(s_BR, positive_BR.to(s_BR.dtype), positive_BR | negative_BR)


class ContrastiveLoss(GenericPairLoss):
    """Contrastive, per anchor: mean of its non-zero [r − m⁺]_+ plus that of its [m − r]_+.

    The loss of pytorch-metric-learning takes these means over all pairs of a batch at once, which
    is the same only where all anchors have equally many non-zero terms.

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
        super().__init__(forms.contrastive(margin, positive_margin, form))


class LiftedStructureLoss(GenericPairLoss):
    """Lifted structure in the form of Hermans et al. (2017) on similarities.

    Args:
        margin: m, a cosine similarity; the paper prints none.

    Raises:
        ValueError: the margin is not a finite number.
    """

    def __init__(self, margin: float = 0.5) -> None:
        super().__init__(forms.LiftedStructure(finite("margin", margin)))


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
        super().__init__(forms.BinomialDeviance(**forms.exponents(beta, gamma, margin)))


class MultiSimilarityLoss(GenericPairLoss):
    """Multi-similarity without mining; pytorch-metric-learning's, under the paper's names.

    Args:
        beta: β > 0, exponent of the positives.
        gamma: γ > 0, exponent of the negatives.
        margin: m, a cosine similarity.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(self, beta: float = 18.0, gamma: float = 75.0, margin: float = 0.77) -> None:
        super().__init__(forms.MultiSimilarity(**forms.exponents(beta, gamma, margin)))


class NCALoss(GenericPairLoss):
    """−log Σ_positives e^s + log Σ_negatives e^s, over the anchors that have a positive.

    Unlike the original, positives are not in the second sum, and s is the cosine similarity.
    """

    def __init__(self) -> None:
        super().__init__(forms.NCA(scale=1.0))


class GenericProxyLoss(ClassificationLoss):
    """A generic loss with proxies as anchors, or as positives and negatives.

    Attributes:
        form: what it computes (`dml.losses.generic_forms`).
        proxies: C×D, the only parameter; normalized where it is used.
    """

    def __init__(self, num_classes: int, embedding_size: int, form: forms.Form) -> None:
        super().__init__(num_classes, embedding_size)
        self.form = form
        self.proxies = nn.Parameter(torch.empty(num_classes, embedding_size))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def batch_loss(self, x_BD: Tensor, labels_B: Tensor) -> Tensor:
        """Returns the loss of checked arguments, float32 or float64."""
        return proxy_loss(self.form, x_BD, labels_B, self.proxies)


class ProxyAnchorLoss(GenericProxyLoss):
    """Proxy Anchor; pytorch-metric-learning's, with β = γ under the name of alpha.

    Args:
        num_classes: C.
        embedding_size: D.
        margin: m, a cosine similarity.
        alpha: β = γ > 0.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self, num_classes: int, embedding_size: int, margin: float = 0.1, alpha: float = 32.0
    ) -> None:
        form = forms.ProxyAnchor(**forms.exponents(alpha, alpha, margin))
        super().__init__(num_classes, embedding_size, form)


class ProxyNCALoss(GenericProxyLoss):
    """ProxyNCA of the table: −s⁺ + log Σ_negatives e^s, positives not in the sum.

    Args:
        num_classes: C, at least 2 for the loss to have a sum.
        embedding_size: D.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__(num_classes, embedding_size, forms.ProxyNCA(scale=1.0))


class ProxyNCAPlusPlusLoss(GenericProxyLoss):
    """ProxyNCA++: −log softmax(s/T) at the label, the same as `dml.losses.ProxyNCAPlusPlusLoss`.

    Args:
        num_classes: C.
        embedding_size: D.
        temperature: T > 0.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(self, num_classes: int, embedding_size: int, temperature: float = 0.1) -> None:
        form = forms.ProxyNCA(1 / positive("temperature", temperature), positives_below=True)
        super().__init__(num_classes, embedding_size, form)


def proxy_loss(form: forms.Form, x_BD: Tensor, labels_B: Tensor, proxies_CD: Tensor) -> Tensor:
    """Returns the loss of samples and proxies, whichever of them are the anchors.

    Args:
        form: one with proxies.
        x_BD: embeddings, float32 or float64.
        labels_B: 0..C−1.
        proxies_CD: one of each class.
    """
    s_BC = cosine_similarity(x_BD, proxies_CD)
    y_BC = nn.functional.one_hot(labels_B, len(proxies_CD)).to(s_BC.dtype)
    if form.anchors == "proxies":
        s_BC, y_BC = s_BC.T, y_BC.T
    return form.loss(s_BC, y_BC, torch.ones_like(y_BC, dtype=torch.bool))


def generic_form(loss: Any) -> forms.Form:
    """Returns the form of a loss, with the loss's own hyperparameters.

    A loss whose form has proxies keeps them as its attribute `proxies`.

    Args:
        loss: of this module, or one of `dml.losses` or pytorch-metric-learning that has such a
            form: ContrastiveLoss, MultiSimilarityLoss, ProxyAnchorLoss, ProxyNCA(++)Loss.

    Raises:
        ValueError: it has no such form, or an option that the form cannot express.
    """
    # Late: dml.losses works without pytorch-metric-learning.
    from pytorch_metric_learning import losses as pml

    from dml.losses.proxy_nca import ProxySoftmaxLoss

    if isinstance(loss, GenericPairLoss | GenericProxyLoss):
        return loss.form
    if isinstance(loss, ProxySoftmaxLoss):  # both keep the positive in the denominator
        return forms.ProxyNCA(loss.scale, positives_below=True)
    if type(loss) is pml.ContrastiveLoss:
        _refuse_options(loss, euclidean=True)
        return forms.contrastive(loss.neg_margin, loss.pos_margin)
    if type(loss) is pml.MultiSimilarityLoss:
        _refuse_options(loss)
        return forms.MultiSimilarity(**forms.exponents(loss.alpha, loss.beta, loss.base))
    if type(loss) is pml.ProxyAnchorLoss:
        _refuse_options(loss)
        return forms.ProxyAnchor(**forms.exponents(loss.alpha, loss.alpha, loss.margin))
    raise ValueError(f"{type(loss).__name__} is not additive over positives and negatives")


def _refuse_options(loss: Any, euclidean: bool = False) -> None:
    """Raises ValueError for a distance or a reducer that is not the loss's own default."""
    from pytorch_metric_learning.distances import CosineSimilarity, LpDistance

    d = loss.distance
    if euclidean:
        usual = type(d) is LpDistance and d.p == 2 and d.power == 1 and d.normalize_embeddings
    else:
        usual = type(d) is CosineSimilarity
    if not usual:
        raise ValueError(f"{type(loss).__name__} with distance {type(d).__name__} has no such form")
    several = getattr(loss.reducer, "reducers", {})  # one for each term of the loss
    for reducer in [several[n] for n in loss._sub_loss_names() if n in several] or [loss.reducer]:
        if type(reducer) is not type(loss.get_default_reducer()):
            raise ValueError(
                f"{type(loss).__name__} with reducer {type(reducer).__name__} has no such form"
            )
