"""Mean field losses: images are compared with one learnable mean field per class (mft).

Shapes: B images in a batch, D embedding dimensions, C classes, P slots for present classes,
T rows of a tile.
d(u, v) = 1 − s(u, v) is the cosine distance, M the mean fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dml.core.torch_internals import not_compiled
from dml.losses.arguments import check_finite, check_non_negative, check_one_of, check_positive
from dml.losses.class_groups import LOG_OF_ZERO, group_by_class, softplus
from dml.losses.cosine import EPSILON, cosine_similarity, unit_rows
from dml.losses.custom_backward import first_order_backward
from dml.losses.metric_loss import ClassificationLoss


class MeanFieldLoss(ClassificationLoss):
    """Base class of losses with one mean field per class.

    Attributes:
        mean_fields: C×D, the only parameter, initialized from N(0, 1); normalized in the loss.
    """

    mined_images = "all"

    def __init__(self, num_classes: int, embedding_size: int, lambda_mf: float = 0.0) -> None:
        super().__init__(num_classes, embedding_size)
        self.lambda_mf = check_non_negative("lambda_mf", lambda_mf)
        self.mean_fields = nn.Parameter(torch.randn(num_classes, embedding_size))

    def batch_loss(self, x_BD: Tensor, labels_B: Tensor, weight_B: Tensor | None) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64)."""
        m_CD = self.mean_fields.to(torch.promote_types(x_BD.dtype, self.mean_fields.dtype))
        loss = self.image_terms(cosine_similarity(x_BD, m_CD), labels_B, weight_B)
        if self.lambda_mf > 0:
            loss = loss + self.lambda_mf * self.between_fields(m_CD)
        return loss

    def image_terms(self, s_BC: Tensor, labels_B: Tensor, weight_B: Tensor | None = None) -> Tensor:
        """Returns the terms between images and mean fields, from their similarities.

        `weight_B`: weights in [0, 1], factors of the terms of single images; None: all 1.
        """
        raise NotImplementedError

    def between_fields(self, m_CD: Tensor) -> Tensor:
        """Returns the term between mean fields, without λ_MF but with 1/C."""
        return sum_over_row_pairs(m_CD, self.repulsion) / len(m_CD)

    def repulsion(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the term of a pair of mean fields with similarity s, and its derivative."""
        raise NotImplementedError

    @torch.no_grad()
    def regularizer_value(self) -> Tensor:
        """Returns the regularizer without its factor λ_MF (mft, Figures 5a and 5b)."""
        with self.without_autocast(self.mean_fields):
            m_CD = self.mean_fields
            return self.between_fields(m_CD.to(torch.promote_types(m_CD.dtype, torch.float32)))


class MeanFieldContrastiveLoss(MeanFieldLoss):
    """MFCont, mft Eq. 8: hinges on the distances of images to mean fields.

    mean_i ( [d(F_i, M_{y_i}) − m_P]_+ + Σ_{c≠y_i} [m_N − d(F_i, M_c)]_+ )
    + (λ_MF / C) Σ_{c≠c'} [m_N − d(M_c, M_c')]_+²

    Args:
        num_classes: C.
        embedding_size: D.
        positive_margin: m_P, a cosine distance.
        negative_margin: m_N, a cosine distance.
        lambda_mf: λ_MF ≥ 0.
        average: `sample`: mean over images (the authors' code); `class`: mean over present
            classes of the means over their images (the printed equation). Equal for
            class-balanced batches.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> loss = MeanFieldContrastiveLoss(num_classes=3, embedding_size=8)
        >>> value = loss(torch.randn(6, 8), torch.tensor([0, 0, 1, 1, 2, 2]))
        >>> value.backward()  # to the parameters of the loss, too
        >>> value.shape
        torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        positive_margin: float = 0.02,
        negative_margin: float = 0.3,
        lambda_mf: float = 0.0,
        average: str = "sample",
    ) -> None:
        super().__init__(num_classes, embedding_size, lambda_mf)
        self.positive_margin = check_finite("positive_margin", positive_margin)
        self.negative_margin = check_finite("negative_margin", negative_margin)
        self.average = check_one_of("average", average, ("sample", "class"))

    def image_terms(self, s_BC: Tensor, labels_B: Tensor, weight_B: Tensor | None = None) -> Tensor:
        """Returns the first two sums of Eq. 8; see `MeanFieldLoss.image_terms`."""
        labels_B1 = labels_B[:, None]
        pull_B = (1 - s_BC.gather(1, labels_B1).squeeze(1) - self.positive_margin).relu()
        push_BC = (s_BC + (self.negative_margin - 1)).relu().scatter(1, labels_B1, 0.0)
        loss_B = pull_B + push_BC.sum(dim=1)
        if weight_B is not None:
            loss_B = weight_B * loss_B
        if self.average == "sample":
            return loss_B.mean()
        return loss_B @ group_by_class(labels_B, s_BC.dtype).share

    def repulsion(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """Returns [m_N − d]_+² and its derivative."""
        hinge = s.add_(self.negative_margin - 1).relu_()
        return hinge.square(), hinge.mul_(2)


class MeanFieldClassWiseMultiSimilarityLoss(MeanFieldLoss):
    """MFCWMS, mft Eq. 10, with δ a similarity threshold as in the authors' code.

    With p_c = mean_{i∈c} exp(α(d(F_i, M_c) + δ − 1)) and
    q_cc' = mean_{i∈c} exp(−β(d(F_i, M_c') + δ − 1)), 0 for a class c without images:

    1/(α C_B) Σ_{present c} log(1 + p_c) + 1/(2β C_B) Σ_{c≠c'} log(1 + q_cc' + q_c'c)
    + (λ_MF / C) Σ_{c≠c'} ( log(1 + exp(−β(d(M_c, M_c') + δ − 1))) / β )²

    The second sum needs only rows of present classes and costs P×C instead of C×C. Weights of the
    images, from a miner, are factors of exp(…).

    For small α the first sum is nearly the constant (log 2)/α, 69.3 for α = 0.01, plus half the
    mean of d(F_i, M_c) + δ − 1: the loss decreases by less than 1 % in a whole training. It is
    logged with and without `constant`.

    Args:
        num_classes: C.
        embedding_size: D.
        alpha: α > 0, sharpness of attraction.
        beta: β > 0, sharpness of repulsion.
        delta: δ, a cosine similarity.
        lambda_mf: λ_MF ≥ 0.
        regularizer: `code`: with 1/β inside the square (the authors' code); `paper`: without.

    Attributes:
        constant: (log 2)/α for α < 1; 0 for larger α, for which no part of the loss is constant.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> loss = MeanFieldClassWiseMultiSimilarityLoss(num_classes=3, embedding_size=8)
        >>> value = loss(torch.randn(6, 8), torch.tensor([0, 0, 1, 1, 2, 2]))
        >>> value.backward()  # to the parameters of the loss, too
        >>> value.shape
        torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        alpha: float = 0.01,
        beta: float = 80.0,
        delta: float = 0.8,
        lambda_mf: float = 0.0,
        regularizer: str = "code",
    ) -> None:
        super().__init__(num_classes, embedding_size, lambda_mf)
        self.alpha = check_positive("alpha", alpha)
        self.beta = check_positive("beta", beta)
        self.delta = check_finite("delta", delta)
        self.regularizer = check_one_of("regularizer", regularizer, ("code", "paper"))
        self.constant = math.log(2) / self.alpha if self.alpha < 1 else 0.0

    def image_terms(self, s_BC: Tensor, labels_B: Tensor, weight_B: Tensor | None = None) -> Tensor:
        """Returns the first two sums of Eq. 10."""
        scales = self.alpha, self.beta, self.delta
        terms: Tensor = _ClassPairSum.apply(s_BC, labels_B, weight_B, *scales)
        return terms

    def repulsion(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (log(1 + exp(−β(d + δ − 1))) / β)² and its derivative."""
        exponent = s.sub_(self.delta).mul_(self.beta)
        scale = 1 / self.beta if self.regularizer == "code" else 1.0
        height = softplus(exponent).mul_(scale)
        slope = exponent.sigmoid_().mul_(height).mul_(2 * scale * self.beta)
        return height.square_(), slope


class MeanFieldNCALoss(MeanFieldLoss):
    """MFNCA, mft Eq. 21, with S_ic = −α d(F_i, M_c).

    mean over present c of mean_{i∈c} −log( exp(S_ic) / Σ_{all c'} exp(S_ic') )
    + mean over present c of −log( Σ_{i∈c} exp(S_ic) / Σ_{i in batch} exp(S_ic) )

    Weights of the images, from a miner, are factors of the terms of the first mean.

    Args:
        num_classes: C.
        embedding_size: D.
        alpha: α > 0.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> loss = MeanFieldNCALoss(num_classes=3, embedding_size=8)
        >>> value = loss(torch.randn(6, 8), torch.tensor([0, 0, 1, 1, 2, 2]))
        >>> value.backward()  # to the parameters of the loss, too
        >>> value.shape
        torch.Size([])
    """

    def __init__(self, num_classes: int, embedding_size: int, alpha: float = 10.0) -> None:
        super().__init__(num_classes, embedding_size)
        self.alpha = check_positive("alpha", alpha)

    def image_terms(self, s_BC: Tensor, labels_B: Tensor, weight_B: Tensor | None = None) -> Tensor:
        """Returns both terms of Eq. 21."""
        groups = group_by_class(labels_B, s_BC.dtype)
        logits_BC = self.alpha * s_BC
        of_images_B = nn.functional.cross_entropy(logits_BC, labels_B, reduction="none")
        if weight_B is not None:
            of_images_B = weight_B * of_images_B

        logits_BP = logits_BC.index_select(1, groups.label)
        slots_P = torch.arange(len(groups.count), device=labels_B.device)
        others_BP = (groups.slot[:, None] != slots_P) & groups.occupied
        class_P = logits_BP.masked_fill(others_BP, -torch.inf).logsumexp(dim=0)
        of_classes_P = torch.where(groups.occupied, logits_BP.logsumexp(dim=0) - class_P, 0.0)
        return of_images_B @ groups.share + of_classes_P.sum() / groups.present

    def between_fields(self, m_CD: Tensor) -> Tensor:
        """Returns 0: Eq. 21 has no term between mean fields."""
        return m_CD.new_zeros(())


class _ClassPairSum(torch.autograd.Function):
    """The first two sums of Eq. 10 and their gradient, with few operations for few classes.

    q_cc is not in the sums: its entry in the P×C matrix holds p_c. A logarithm log(1 + q), with q
    the mean of exp(e) over a class, is m + log1p(u − 1 + exp(−m)) with m = max(0, all e) and
    u = q exp(−m), which neither overflows nor loses small q.
    """

    @staticmethod
    def forward(
        ctx: Any, s_BC: Tensor, labels_B: Tensor, weight_B: Tensor | None, *scales: float
    ) -> Tensor:
        alpha, beta, delta = scales
        groups = group_by_class(labels_B, s_BC.dtype)
        slot_B, label_P, occupied_P = groups.slot, groups.label, groups.count.clamp_max(1)
        label_B1, label_P1 = labels_B[:, None], label_P[:, None]
        z_BC = (s_BC - delta).mul_(beta)
        z_BC.scatter_(1, label_B1, z_BC.gather(1, label_B1).mul_(-alpha / beta))
        if weight_B is not None:
            z_BC += weight_B.log().clamp_min(LOG_OF_ZERO).to(z_BC.dtype)[:, None]
        m_PC = z_BC.new_zeros(len(label_P), s_BC.shape[1])
        m_PC.scatter_reduce_(0, slot_B[:, None].expand_as(z_BC), z_BC, "amax")
        # both orders of two classes have one maximum
        m_PP = m_PC.index_select(1, label_P) * occupied_P
        m_PC.scatter_reduce_(1, label_P.expand_as(m_PP), m_PP.T, "amax")

        z_BC.sub_(m_PC.index_select(0, slot_B)).exp_()
        mean_P1 = groups.count.clamp_min(1).reciprocal_()[:, None]
        u_PC = torch.zeros_like(m_PC).index_add_(0, slot_B, z_BC).mul_(mean_P1)
        _add_transposed(u_PC, label_P)
        u_PC += torch.expm1(-m_PC)
        # of a pair of a present and an absent class both orders are in the row of the present one
        factor_C = u_PC.new_ones(u_PC.shape[1]).index_add_(0, label_P, occupied_P, alpha=-0.5)
        share_P1 = (occupied_P / groups.present)[:, None]
        factor_PC = (factor_C / beta) * share_P1
        factor_PC.scatter_(1, label_P1, share_P1 / alpha)
        loss = factor_PC.mul(u_PC.log1p().add_(m_PC)).sum()

        g_PC = factor_PC.mul_(beta).scatter_(1, label_P1, -share_P1).div_(u_PC.add_(1))
        _add_transposed(g_PC, label_P)
        ctx.save_for_backward(z_BC, g_PC.mul_(mean_P1), slot_B)
        return loss

    @staticmethod
    @first_order_backward
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        z_BC, g_PC, slot_B = ctx.saved_tensors
        return (g_PC * g).index_select(0, slot_B).mul_(z_BC), None, None, None, None, None


def _add_transposed(u_PC: Tensor, label_P: Tensor) -> None:
    """Adds u_c'c to u_cc' in place for all pairs c ≠ c' of the present classes."""
    u_PP = u_PC.index_select(1, label_P).fill_diagonal_(0)
    u_PC.scatter_add_(1, label_P.expand_as(u_PP), u_PP.T)


# Maps similarities s to (φ(s), φ'(s)), elementwise.
PairTerm = Callable[[Tensor], tuple[Tensor, Tensor]]


class _RowPairSum(torch.autograd.Function):
    """Computes value and gradient together, so that each similarity is computed once."""

    @staticmethod
    def forward(ctx: Any, m_CD: Tensor, pair_term: PairTerm, with_gradient: bool) -> Tensor:
        u_CD, norm_C1 = unit_rows(m_CD)
        total = m_CD.new_zeros(())
        grad_CD = torch.zeros_like(u_CD) if with_gradient else None
        tile = 4096 if m_CD.is_cuda else 1024
        starts = range(0, len(u_CD), tile)
        for a in starts:
            u_TD = u_CD[a : a + tile]
            for b in range(a, len(u_CD), tile):  # the other triangle is symmetric
                v_TD = u_CD[b : b + tile]
                value_TT, slope_TT = pair_term(u_TD @ v_TD.T)
                if a == b:
                    value_TT.fill_diagonal_(0)
                    slope_TT.fill_diagonal_(0)
                total += value_TT.sum() * (1 if a == b else 2)
                if grad_CD is not None:
                    grad_CD[a : a + tile].addmm_(slope_TT, v_TD, alpha=2)
                    if a != b:
                        grad_CD[b : b + tile].addmm_(slope_TT.T, u_TD, alpha=2)
        if grad_CD is not None:
            stretch_C1 = (grad_CD * u_CD).sum(dim=1, keepdim=True)
            stretch_C1 = torch.where(norm_C1 > EPSILON, stretch_C1, 0)
            grad_CD.addcmul_(u_CD, stretch_C1, value=-1).div_(norm_C1)
            ctx.save_for_backward(grad_CD)
        return total

    @staticmethod
    @first_order_backward
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (grad_CD,) = ctx.saved_tensors
        return grad_CD * g, None, None


@not_compiled  # unrolling the loop over tiles into a graph has no benefit
def sum_over_row_pairs(m_CD: Tensor, pair_term: PairTerm) -> Tensor:
    """Returns the sum of φ(cos(m_c, m_c')) over ordered pairs c ≠ c'.

    In addition to the matrix and its gradient, memory is needed for a few tiles, never for C×C.

    Args:
        m_CD: rows of any length.
        pair_term: returns φ and its derivative; may overwrite its argument.
    """
    with_gradient = torch.is_grad_enabled() and m_CD.requires_grad
    total: Tensor = _RowPairSum.apply(m_CD, pair_term, with_gradient)
    return total
