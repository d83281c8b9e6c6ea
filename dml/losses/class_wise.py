"""Class-wise pair losses (mft), whose mean field limits are MFCont and MFCWMS.

Shapes: B images in a batch, D embedding dimensions, R references (the batch itself by default), P
and Q slots for the present classes of images and references.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from dml.losses.arguments import check_finite, check_positive
from dml.losses.class_groups import LOG_OF_ZERO, ClassGroups, group_by_class, log_mean_exp, softplus
from dml.losses.cosine import pair_similarity
from dml.losses.metric_loss import PairLoss, Pairs, self_mask


class ClassWiseMultiSimilarityLoss(PairLoss):
    """CWMS, mft Eq. 9, with δ a similarity threshold as in the authors' code.

    1/(α C_B) Σ_c log(1 + ½ mean_{i,j∈c} exp(−α(s_ij − δ)))
    + 1/(2β C_B) Σ_{c≠c'} log(1 + mean_{i∈c, j∈c'} exp(β(s_ij − δ)))

    With references, i runs over the batch and j over the references. For pairs excluded by a miner,
    exp(…) is 0 in the means, which still divide by the number of all pairs.

    Args:
        alpha: α > 0, sharpness of attraction.
        beta: β > 0, sharpness of repulsion.
        delta: δ, a cosine similarity.
        include_self: whether the first sum includes i = j (True: mft_v1 and the authors' code;
            False: mft). The mean divides by n_c² in both cases.

    Attributes:
        constant: (log 1.5)/α for α < 1, close to the first sum for any embeddings; 0 for larger α.
            The loss is logged with and without it.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> loss = ClassWiseMultiSimilarityLoss(alpha=2, beta=10, delta=0.5)
        >>> embeddings = torch.eye(4)[[0, 1, 0, 2]]
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> round(loss(embeddings, labels).item(), 3)
        0.468
    """

    needs_labels = True

    def __init__(self, alpha: float, beta: float, delta: float, include_self: bool = True) -> None:
        super().__init__()
        self.alpha = check_positive("alpha", alpha)
        self.beta = check_positive("beta", beta)
        self.delta = check_finite("delta", delta)
        self.include_self = include_self
        self.constant = math.log(1.5) / self.alpha if self.alpha < 1 else 0.0

    def pair_loss(self, x_BD: Tensor, ref_RD: Tensor, pairs: Pairs) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64)."""
        above_BR = pair_similarity(x_BD, ref_RD) - self.delta
        rows, columns = _group(pairs, above_BR.dtype)
        same_PQ = rows.label[:, None] == columns.label
        counts_PQ = rows.occupied[:, None] & columns.occupied

        pull_BR, push_BR = -self.alpha * above_BR, self.beta * above_BR
        if pairs.mined is not None:
            positive_BR, negative_BR = pairs.masks()
            pull_BR = pull_BR.masked_fill(~positive_BR, LOG_OF_ZERO)
            push_BR = push_BR.masked_fill(~negative_BR, LOG_OF_ZERO)
        elif pairs.self_index is not None and not self.include_self:
            pull_BR = pull_BR.masked_fill(self_mask(pairs.self_index, len(ref_RD)), LOG_OF_ZERO)
        attraction_PQ = softplus(_mean_of_blocks(pull_BR, rows, columns) - math.log(2))
        repulsion_PQ = softplus(_mean_of_blocks(push_BR, rows, columns))
        positive_term = torch.where(counts_PQ & same_PQ, attraction_PQ, 0).sum() / self.alpha
        negative_term = torch.where(counts_PQ & ~same_PQ, repulsion_PQ, 0).sum() / (2 * self.beta)
        return (positive_term + negative_term) / rows.present


def _group(pairs: Pairs, dtype: torch.dtype) -> tuple[ClassGroups, ClassGroups]:
    """Groups the images and the references by class."""
    rows = group_by_class(pairs.labels, dtype)
    same = pairs.ref_labels is pairs.labels
    return rows, rows if same else group_by_class(pairs.ref_labels, dtype)


def _mean_of_blocks(e_BR: Tensor, rows: ClassGroups, columns: ClassGroups) -> Tensor:
    """Returns log mean_{i∈c, j∈c'} exp(e_ij) for all pairs of classes (P×Q)."""
    return log_mean_exp(log_mean_exp(e_BR, rows).T.contiguous(), columns).T


class ClassBalancedContrastiveLoss(PairLoss):
    """Contrastive loss with equal weights of all classes, mft Eq. 6; d is the cosine distance.

    1/(2 C_B) Σ_c mean_{i,j∈c} [d_ij − m_P]_+ + 1/(2 C_B) Σ_{c≠c'} mean_{i∈c, j∈c'} [m_N − d_ij]_+

    With references, i runs over the batch and j over the references. As in Eq. 6, the first sum
    includes i = j, a constant [−m_P]_+ without gradient; `self_index` has no effect. The terms of
    pairs excluded by a miner are 0 in the means.

    Args:
        positive_margin: m_P, a cosine distance.
        negative_margin: m_N, a cosine distance.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> loss = ClassBalancedContrastiveLoss(positive_margin=0.1, negative_margin=0.5)
        >>> embeddings = torch.eye(4)[[0, 1, 0, 2]]
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> round(loss(embeddings, labels).item(), 3)
        0.287
    """

    needs_labels = True

    def __init__(self, positive_margin: float, negative_margin: float) -> None:
        super().__init__()
        self.positive_margin = check_finite("positive_margin", positive_margin)
        self.negative_margin = check_finite("negative_margin", negative_margin)

    def pair_loss(self, x_BD: Tensor, ref_RD: Tensor, pairs: Pairs) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64)."""
        d_BR = 1 - pair_similarity(x_BD, ref_RD)
        rows, columns = _group(pairs, d_BR.dtype)
        same_BR = pairs.labels[:, None] == pairs.ref_labels
        pull_BR = (d_BR - self.positive_margin).relu()
        push_BR = (self.negative_margin - d_BR).relu()
        loss_BR = torch.where(same_BR, pull_BR, push_BR)
        if pairs.mined is not None:
            positive_BR, negative_BR = pairs.masks()
            loss_BR = torch.where((positive_BR & same_BR) | (negative_BR & ~same_BR), loss_BR, 0)
        # a mean over a block is a sum with weights 1 / (n_c n_c')
        return rows.share @ (loss_BR @ (1 / columns.count[columns.slot])) / 2
