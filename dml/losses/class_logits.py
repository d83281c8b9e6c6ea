"""Logits of losses that classify: similarities to class weights or proxies, in the loss's scale.

Shapes: B images, D embedding dimensions, C classes.
"""

from __future__ import annotations

import torch
from pytorch_metric_learning import losses as pml
from torch import Tensor, nn

from dml.losses.cosine import cosine_similarity
from dml.losses.proxy_nca import ProxySoftmaxLoss


@torch.no_grad()
def class_logits(loss: nn.Module, embeddings: Tensor) -> Tensor:
    """Returns the logits B×C of embeddings B×D, without the margins of training.

    Their softmax has the probabilities that the loss trains: of ProxyNCA, ProxyNCA++, Center
    Contrastive, NormalizedSoftmax, ArcFace, CosFace and SoftTriple. ProxyAnchor trains no softmax;
    its logits are α s(x, p_c), its scaled similarities.

    Args:
        loss: of this package or of pytorch-metric-learning.
        embeddings: B×D; need not be normalized.

    Raises:
        ValueError: the loss has no logits, or embeddings of another size.
    """
    x_BD = embeddings.float()
    if isinstance(loss, ProxySoftmaxLoss):
        return loss.scale * cosine_similarity(x_BD, loss.proxies)
    if isinstance(loss, pml.SoftTripleLoss):
        return loss.la * loss.get_logits(x_BD)
    if isinstance(loss, pml.ProxyAnchorLoss):
        return _similarities(loss, loss.alpha * loss.get_logits(x_BD))
    if isinstance(loss, pml.ProxyNCALoss):
        return _similarities(loss, loss.softmax_scale * loss.get_logits(x_BD))
    if isinstance(loss, pml.LargeMarginSoftmaxLoss | pml.NormalizedSoftmaxLoss):
        return loss.get_logits(x_BD)
    raise ValueError(
        f"loss: {type(loss).__name__} has no logits of classes; dml.classify compares images with "
        f"neighbors and class means"
    )


def _similarities(loss: nn.Module, values: Tensor) -> Tensor:
    """Returns values of which larger ones are more similar: distances change their sign."""
    return values if loss.distance.is_inverted else -values  # type: ignore[union-attr]
