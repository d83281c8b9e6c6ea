"""Smooth-AP and the surrogate of Recall@k: smooth ranks of the images with the class of a query.

Shapes: B images in a batch (the queries), D embedding dimensions, R references (the batch itself by
default), K slots for the positives of a query, T slots of a tile, P pairs of a class, M masks, or
images and mixes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dml.losses.arguments import check_integer, check_positive
from dml.losses.cosine import pair_similarity, unit_rows
from dml.losses.metric_loss import PairLoss, Pairs, self_mask

TILE = 2**24  # differences of similarities at a time


class RankingLoss(PairLoss):
    """Base class of losses of smooth ranks.

    The rank of x among images z, for a query q, is 1 + Σ_{z≠x} σ((s_qz − s_qx)/τ), where σ is the
    logistic function. With references, they are the images z, and the query is one of them where
    `self_index` says so. Time is O(B·K·R), memory O(B·R) above a tile of 2²⁴ differences. On the
    CPU K is the largest number of positives of a query; on a GPU, and inside `torch.compile`, it is
    R, since counting positives would wait for the device.

    Args:
        temperature: τ > 0, in cosine similarity.
        include_self: whether the query is one of the images z, as in the authors' code. It always
            has rank 1, and adds 1 to all other ranks.
    """

    def __init__(self, temperature: float = 0.01, include_self: bool = True) -> None:
        super().__init__()
        self.temperature = check_positive("temperature", temperature)
        self.include_self = include_self

    def pair_loss(self, x_BD: Tensor, ref_RD: Tensor, pairs: Pairs) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64)."""
        return self.ranking_loss(pair_similarity(x_BD, ref_RD), pairs)

    def ranking_loss(self, s_BR: Tensor, pairs: Pairs) -> Tensor:
        """Returns the loss of similarities as a scalar."""
        positive_BR, negative_BR = pairs.masks()
        self_BR = torch.zeros_like(positive_BR)
        if self.include_self and pairs.self_index is not None:
            self_BR = self_mask(pairs.self_index, s_BR.shape[1])
        gain_B, queries_B = self.gains(
            s_BR, positive_BR & ~self_BR, negative_BR & ~self_BR, self_BR
        )
        loss_B = torch.where(queries_B, 1 - gain_B, 0)
        return loss_B.sum() / queries_B.sum().clamp_min(1)

    def gains(
        self, s_BR: Tensor, positive_BR: Tensor, negative_BR: Tensor, self_BR: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the maximized value of each query (B), and a mask of the queries with a term."""
        raise NotImplementedError

    def ranks(
        self, s_BR: Tensor, item_BR: Tensor, *masks: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Returns which slots hold an item (B×K), and the items' ranks in each mask (B×K).

        Args:
            s_BR: similarities.
            item_BR: mask of the items x.
            masks: of images z (B×R each); x counts as one half, as if it were among them.
        """
        if s_BR.is_cuda or torch.compiler.is_compiling():
            slots = s_BR.shape[1]
        else:
            slots = int(item_BR.sum(dim=1).max())
        held_BK, place_BK = item_BR.byte().topk(slots, dim=1)
        mask_BRM = torch.stack(masks, dim=2).to(s_BR.dtype)

        def sums(s_BT: Tensor) -> Tensor:
            above_BTR = s_BR[:, None] - s_BT[:, :, None]
            return (above_BTR / self.temperature).sigmoid() @ mask_BRM

        tiles = s_BR.gather(1, place_BK).split(max(1, TILE // s_BR.numel()), dim=1)
        if len(tiles) == 1:
            sums_BKM = sums(tiles[0])
        else:  # computed again in the backward pass: memory for one tile
            again = partial(checkpoint, sums, use_reentrant=False, preserve_rng_state=False)
            sums_BKM = torch.cat([again(s_BT) for s_BT in tiles], dim=1)
        return held_BK.bool(), (0.5 + sums_BKM).unbind(dim=2)


class SmoothAPLoss(RankingLoss):
    """Smooth-AP: one minus the average precision of smooth ranks, averaged over the queries.

    1 − mean_q mean_x rank among the positives of q / rank among all images, x a positive of q.

    Queries without positives are left out. With `include_self`, a query is one of its positives.
    Pairs excluded by a miner do not count. Classes may differ in size, unlike in
    pytorch-metric-learning's SmoothAPLoss.

    Args:
        temperature: τ > 0, in cosine similarity.
        include_self: whether the query itself is ranked and a positive (the authors' code).

    Raises:
        ValueError: the temperature is not above 0.

    Example:
        >>> loss = SmoothAPLoss()
        >>> embeddings = torch.eye(4)[[0, 1, 0, 2]]
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> round(loss(embeddings, labels).item(), 3)
        0.274
    """

    def gains(
        self, s_BR: Tensor, positive_BR: Tensor, negative_BR: Tensor, self_BR: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the average precisions; see `RankingLoss.gains`."""
        positive_BR = positive_BR | self_BR
        held_BK, ranks = self.ranks(s_BR, positive_BR, positive_BR, positive_BR | negative_BR)
        precision_BK = held_BK * ranks[0] / ranks[1]
        count_B = positive_BR.sum(dim=1)
        return precision_BK.sum(dim=1) / count_B.clamp_min(1), count_B > 0


class RecallAtKLoss(RankingLoss):
    """Surrogate of Recall@k: one minus smooth recalls, averaged over values of k and the queries.

    1 − mean_q mean_k min(k, Σ_x σ((k − rank of x)/τ*)) / min(k, positives of q)

    x runs over the positives of q, without q itself. Queries without positives are left out. Pairs
    excluded by a miner do not count.

    With similarity mixup (SiMix) the batch is extended, as in the authors' code, by a mix λ x̂_i +
    (1 − λ) x̂_j of every two images of one class, λ uniform in [0, 1]. Mixes are queries and ranked
    images of this class. They are not normalized: their similarities are mixes of similarities.

    Args:
        temperature: τ > 0 of the ranks, in cosine similarity.
        recall_at: values of k, each at least 1; at most the number of references counts.
        recall_temperature: τ* > 0, in ranks.
        include_self: whether the query itself is ranked (the authors' code).
        similarity_mixup: whether the batch is extended by mixes. Listing the pairs waits for a GPU.

    Raises:
        ValueError: an argument is out of range, or there is no k. In a call: references or a
            miner's tuple with similarity mixup.

    Example:
        >>> loss = RecallAtKLoss()
        >>> embeddings = torch.eye(4)[[0, 1, 0, 2]]
        >>> labels = torch.tensor([0, 0, 1, 1])
        >>> round(loss(embeddings, labels).item(), 3)
        0.529
    """

    def __init__(
        self,
        temperature: float = 0.01,
        recall_at: Sequence[int] = (1, 2, 4, 8, 16),
        recall_temperature: float = 1.0,
        include_self: bool = True,
        similarity_mixup: bool = False,
    ) -> None:
        super().__init__(temperature, include_self)
        self.recall_at = tuple(check_integer("recall_at", k, at_least=1) for k in recall_at)
        if not self.recall_at:
            raise ValueError("recall_at must hold at least one k")
        self.recall_temperature = check_positive("recall_temperature", recall_temperature)
        self.similarity_mixup = similarity_mixup

    def pair_loss(self, x_BD: Tensor, ref_RD: Tensor, pairs: Pairs) -> Tensor:
        """Returns the loss; `forward` has checked the arguments (float32 or float64)."""
        if not self.similarity_mixup:
            return super().pair_loss(x_BD, ref_RD, pairs)
        if ref_RD is not x_BD or pairs.self_index is None or pairs.mined is not None:
            raise ValueError("similarity_mixup: needs a batch without references and without miner")
        i_P, j_P = pairs.masks()[0].triu(diagonal=1).nonzero(as_tuple=True)
        x_BD = unit_rows(x_BD)[0]
        share_P1 = torch.rand(len(i_P), 1).to(x_BD, non_blocking=True)
        x_MD = torch.cat([x_BD, share_P1 * x_BD[i_P] + (1 - share_P1) * x_BD[j_P]])
        labels_M = torch.cat([pairs.labels, pairs.labels[i_P]])
        self_M = torch.arange(len(x_MD), device=x_MD.device)
        return self.ranking_loss(x_MD @ x_MD.T, Pairs(labels_M, labels_M, self_M))

    def gains(
        self, s_BR: Tensor, positive_BR: Tensor, negative_BR: Tensor, self_BR: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the recalls, averaged over k; see `RankingLoss.gains`."""
        held_BK, (rank_BK,) = self.ranks(s_BR, positive_BR, positive_BR | negative_BR | self_BR)
        count_B = positive_BR.sum(dim=1)
        recalls = []
        for k in (min(k, s_BR.shape[1]) for k in self.recall_at):
            hits_BK = held_BK * ((k - rank_BK) / self.recall_temperature).sigmoid()
            recalls.append(hits_BK.sum(dim=1).clamp_max(k) / count_B.clamp(1, k))
        return torch.stack(recalls).mean(dim=0), count_B > 0
