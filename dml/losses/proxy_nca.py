"""ProxyNCA, ProxyNCA++ and Center Contrastive as cross-entropies, which cannot underflow.

Shapes: B images in a batch, D embedding dimensions, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dml.losses.arguments import check_finite, check_non_negative, check_positive
from dml.losses.cosine import cosine_similarity
from dml.losses.metric_loss import ClassificationLoss


class ProxySoftmaxLoss(ClassificationLoss):
    """Cross-entropy of scaled cosine similarities to one proxy per class, averaged over images.

    Attributes:
        proxies: C×D, the only parameter; normalized in the loss.
    """

    mined_images = "anchors"
    scale: float

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__(num_classes, embedding_size)
        self.proxies = nn.Parameter(torch.empty(num_classes, embedding_size))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def batch_loss(self, x_BD: Tensor, labels_B: Tensor, weight_B: Tensor | None) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64)."""
        p_CD = self.proxies.to(torch.promote_types(x_BD.dtype, self.proxies.dtype))
        s_BC = cosine_similarity(x_BD, p_CD)
        if weight_B is None:
            return nn.functional.cross_entropy(self.scale * s_BC, labels_B)
        loss_B = nn.functional.cross_entropy(self.scale * s_BC, labels_B, reduction="none")
        return (weight_B * loss_B).mean()


class ProxyNCALoss(ProxySoftmaxLoss):
    """ProxyNCA: mean_i −log( exp(−γ r²(x_i, p_{y_i})) / Σ_c exp(−γ r²(x_i, p_c)) ), unit vectors.

    Equal to the loss of pytorch-metric-learning unless a probability underflows: that loss ignores
    such images, although they have the largest loss.

    Args:
        num_classes: C.
        embedding_size: D.
        softmax_scale: γ > 0.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> loss = ProxyNCALoss(num_classes=3, embedding_size=8)
        >>> value = loss(torch.randn(6, 8), torch.tensor([0, 0, 1, 1, 2, 2]))
        >>> value.backward()  # to the parameters of the loss, too
        >>> value.shape
        torch.Size([])
    """

    def __init__(self, num_classes: int, embedding_size: int, softmax_scale: float = 1.0) -> None:
        super().__init__(num_classes, embedding_size)
        self.softmax_scale = check_positive("softmax_scale", softmax_scale)
        self.scale = 2 * self.softmax_scale  # r² = 2 − 2s, and the softmax ignores the 2


class ProxyNCAPlusPlusLoss(ProxySoftmaxLoss):
    """ProxyNCA++: mean_i −log( exp(s(x_i, p_{y_i})/T) / Σ_c exp(s(x_i, p_c)/T) ).

    Args:
        num_classes: C.
        embedding_size: D.
        temperature: T > 0.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> loss = ProxyNCAPlusPlusLoss(num_classes=3, embedding_size=8)
        >>> value = loss(torch.randn(6, 8), torch.tensor([0, 0, 1, 1, 2, 2]))
        >>> value.backward()  # to the parameters of the loss, too
        >>> value.shape
        torch.Size([])
    """

    def __init__(self, num_classes: int, embedding_size: int, temperature: float = 0.1) -> None:
        super().__init__(num_classes, embedding_size)
        self.temperature = check_positive("temperature", temperature)
        self.scale = 1 / self.temperature


class CenterContrastiveLoss(ProxySoftmaxLoss):
    """Center Contrastive: the proxies are class centers, and every image is also pulled to its own.

    mean_i −log( exp(γ (s_i − m)) / (exp(γ (s_i − m)) + Σ_{c≠y_i} exp(γ s(x_i, p_c))) ) − 2λ s_i,
    with s_i = s(x_i, p_{y_i}); −2λ s_i is λ ‖x̂_i − p̂_{y_i}‖² without its constant.

    Args:
        num_classes: C.
        embedding_size: D.
        scale: γ > 0.
        margin: m.
        lambda_c: λ ≥ 0.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> loss = CenterContrastiveLoss(num_classes=3, embedding_size=8)
        >>> value = loss(torch.randn(6, 8), torch.tensor([0, 0, 1, 1, 2, 2]))
        >>> value.backward()  # to the parameters of the loss, too
        >>> value.shape
        torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        scale: float = 16.0,
        margin: float = 0.0,
        lambda_c: float = 1.0,
    ) -> None:
        super().__init__(num_classes, embedding_size)
        self.scale = check_positive("scale", scale)
        self.margin = check_finite("margin", margin)
        self.lambda_c = check_non_negative("lambda_c", lambda_c)

    def batch_loss(self, x_BD: Tensor, labels_B: Tensor, weight_B: Tensor | None) -> Tensor:
        """Returns the loss of arguments checked by `forward`, float32 or float64."""
        s_BC = cosine_similarity(x_BD, self.proxies)
        positive_B1 = s_BC.gather(1, labels_B[:, None])
        logits_BC = self.scale * s_BC.scatter(1, labels_B[:, None], positive_B1 - self.margin)
        loss_B = nn.functional.cross_entropy(logits_BC, labels_B, reduction="none")
        loss_B = loss_B - 2 * self.lambda_c * positive_B1[:, 0]
        return (loss_B if weight_B is None else weight_B * loss_B).mean()
