"""HIST: class distributions, and a network on the hypergraph of images and classes of a batch.

Shapes: B images in a batch, D embedding dimensions, C classes, P slots for present classes, H
hidden units.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, leaky_relu, linear, relu6

from dml.losses.arguments import check_integer, check_non_negative, check_positive
from dml.losses.class_groups import group_by_class
from dml.losses.cosine import unit_rows
from dml.losses.metric_loss import ClassificationLoss


class HISTLoss(ClassificationLoss):
    """Hypergraph-induced semantic tuplet loss, as in the authors' code.

    With the squared Mahalanobis distance m_ic = Σ_d (x̂_id − μ̂_cd)² / exp(relu6(v_cd)) of unit
    embeddings and unit class means:

    mean_i −log softmax_c(−τ m_ic)_{y_i} + λ_s mean_i −log softmax_c(Z_ic)_{y_i}

    Z = G (leaky_relu(batch_norm(G (x θ₁ + b₁))) θ₂ + b₂) is a network of two layers on the
    embeddings x, not normalized, with G = D_v^(−1/2) H D_e^(−1) Hᵀ D_v^(−1/2). H_ic is 1 for the
    class of image i, and exp(−α m_ic) for the other classes in the batch; D_v and D_e are the sums
    of its rows and columns. Batch normalization uses the moments of the batch only, since the
    network has no role after training.

    Args:
        num_classes: C.
        embedding_size: D.
        hidden_size: H.
        tau: τ > 0.
        alpha: α > 0.
        lambda_s: λ_s ≥ 0.

    Attributes:
        means: C×D, μ; normalized in the loss.
        log_variances: C×D, v.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> loss = HISTLoss(num_classes=3, embedding_size=8)
        >>> value = loss(torch.randn(6, 8), torch.tensor([0, 0, 1, 1, 2, 2]))
        >>> value.backward()  # to the parameters of the loss, too
        >>> value.shape
        torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        hidden_size: int = 512,
        tau: float = 32.0,
        alpha: float = 0.9,
        lambda_s: float = 1.0,
    ) -> None:
        super().__init__(num_classes, embedding_size)
        self.hidden_size = check_integer("hidden_size", hidden_size, at_least=1)
        self.tau = check_positive("tau", tau)
        self.alpha = check_positive("alpha", alpha)
        self.lambda_s = check_non_negative("lambda_s", lambda_s)
        self.means = nn.Parameter(torch.empty(num_classes, embedding_size))
        self.log_variances = nn.Parameter(torch.empty(num_classes, embedding_size))
        for parameter in (self.means, self.log_variances):
            nn.init.kaiming_normal_(parameter, mode="fan_out")
        self.first = nn.Linear(embedding_size, hidden_size)
        self.norm_weight = nn.Parameter(torch.ones(hidden_size))
        self.norm_bias = nn.Parameter(torch.zeros(hidden_size))
        self.second = nn.Linear(hidden_size, num_classes)

    def batch_loss(self, x_BD: Tensor, labels_B: Tensor, weight_B: Tensor | None) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64)."""
        x_BD = x_BD.to(torch.promote_types(x_BD.dtype, self.means.dtype))
        m_BC = self.distances(x_BD)
        loss = cross_entropy(-self.tau * m_BC, labels_B)
        if self.lambda_s > 0:
            logits_BC = self.propagate(x_BD, m_BC, labels_B)
            loss = loss + self.lambda_s * cross_entropy(logits_BC, labels_B)
        return loss

    def distances(self, x_BD: Tensor) -> Tensor:
        """Returns the squared Mahalanobis distances m (B×C), without a B×C×D tensor."""
        u_BD, mu_CD = unit_rows(x_BD)[0], unit_rows(self.means.to(x_BD.dtype))[0]
        inverse_CD = (-relu6(self.log_variances.to(x_BD.dtype))).exp()
        cross_BC = u_BD @ (mu_CD * inverse_CD).T
        return u_BD.square() @ inverse_CD.T - 2 * cross_BC + (mu_CD.square() * inverse_CD).sum(1)

    def propagate(self, x_BD: Tensor, m_BC: Tensor, labels_B: Tensor) -> Tensor:
        """Returns the outputs Z of the network on the hypergraph (B×C)."""
        groups = group_by_class(labels_B, x_BD.dtype)
        own_BP = labels_B[:, None] == groups.label
        h_BP = torch.where(own_BP, 1.0, (-self.alpha * m_BC[:, groups.label]).exp())
        h_BP = h_BP * groups.occupied
        scaled_BP = h_BP * h_BP.sum(dim=1, keepdim=True).rsqrt()
        g_BB = (scaled_BP / h_BP.sum(dim=0).clamp_min(1)) @ scaled_BP.T

        z_BH = g_BB @ _affine(x_BD, self.first)
        variance_H, mean_H = torch.var_mean(z_BH, dim=0, correction=0)
        z_BH = (z_BH - mean_H) * (variance_H + 1e-5).rsqrt()
        z_BH = z_BH * self.norm_weight.to(z_BH.dtype) + self.norm_bias.to(z_BH.dtype)
        return g_BB @ _affine(leaky_relu(z_BH, 0.1), self.second)


def _affine(x: Tensor, layer: nn.Linear) -> Tensor:
    """Returns the output of a layer in the precision of x."""
    return linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))
