"""Generic losses of Metrix with proxies as anchors, or as positives and negatives (Table 1).

Shapes: B images in a batch, D embedding dimensions, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dml.losses.cosine import cosine_similarity
from dml.losses.generic import forms
from dml.losses.metric_loss import ClassificationLoss


class GenericProxyLoss(ClassificationLoss):
    """A generic loss with proxies as anchors, or as positives and negatives.

    Attributes:
        form: the terms it sums (`dml.losses.generic.forms`).
        proxies: C×D, the only parameter; normalized where it is used.
    """

    def __init__(self, num_classes: int, embedding_size: int, form: forms.Form) -> None:
        super().__init__(num_classes, embedding_size)
        self.form = form
        self.proxies = nn.Parameter(torch.empty(num_classes, embedding_size))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def batch_loss(self, x_BD: Tensor, labels_B: Tensor, weight_B: Tensor | None) -> Tensor:
        """Returns the loss of checked arguments, float32 or float64."""
        return compute_proxy_loss(self.form, x_BD, labels_B, self.proxies, weight_B)


class ProxyAnchorLoss(GenericProxyLoss):
    """Proxy Anchor with β = γ = alpha, equal to pytorch-metric-learning's.

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
        num_classes: C, at least 2 for a negative proxy to exist.
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
    """Returns the loss of samples and proxies, with either of them as anchors.

    Args:
        form: one with proxies.
        x_BD: embeddings, float32 or float64.
        labels_B: 0..C−1.
        proxies_CD: one of each class.
        weight_B: w, weights of the samples, from 0 to 1; None: all 1. A sample's loss is multiplied
            by its w; with proxies as anchors, its exponentials are by e^(w − 1), as in
            pytorch-metric-learning.
    """
    s_BC = cosine_similarity(x_BD, proxies_CD)
    y_BC = nn.functional.one_hot(labels_B, len(proxies_CD)).to(s_BC.dtype)
    present_BC = torch.ones_like(y_BC, dtype=torch.bool)
    if form.anchors == "proxies":
        if weight_B is not None:
            present_BC = (weight_B - 1).exp()[:, None] * present_BC
        return form.loss(s_BC.T, y_BC.T, present_BC.T)
    if weight_B is not None:
        return (weight_B * form.anchor_losses(s_BC, y_BC, present_BC)).mean()
    return form.loss(s_BC, y_BC, present_BC)
