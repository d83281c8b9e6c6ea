"""Smooth-AP and the surrogate of Recall@k: smooth ranks of the images with the class of a query.

Shapes: B images in a batch (the queries), D embedding dimensions, R references (the batch itself by
default), P positive pairs, K values of k.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dml.losses.arguments import check_integer, check_positive, reads_values
from dml.losses.cosine import pair_similarity
from dml.losses.metric_loss import PairLoss, Pairs, self_mask


class RankingLoss(PairLoss):
    """Base class of losses of smooth ranks.

    The rank of x among images z, for a query q, is 1 + Σ_{z≠x} σ((s_qz − s_qx)/τ), where σ is the
    logistic function. Memory is needed for P×R ranks, not for B×R×R, except in `torch.compile` and
    CUDA graphs. Finding the positive pairs waits for a GPU.

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
        """Returns the loss of arguments checked by `forward`, float32 or float64."""
        s_BR = pair_similarity(x_BD, ref_RD)
        positive_BR, negative_BR = pairs.masks()
        own_BR = torch.zeros_like(positive_BR)
        if self.include_self and pairs.self_index is not None:
            own_BR = self_mask(pairs.self_index, len(ref_RD))
        gain_B, queries_B = self.gains(s_BR, positive_BR & ~own_BR, negative_BR & ~own_BR, own_BR)
        loss_B = torch.where(queries_B, 1 - gain_B, 0)
        return loss_B.sum() / queries_B.sum().clamp_min(1)

    def gains(
        self, s_BR: Tensor, positive_BR: Tensor, negative_BR: Tensor, own_BR: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns what is maximized for each query (B), and the mask of the queries with a term."""
        raise NotImplementedError

    def steps(self, s_BR: Tensor, query_P: Tensor, item_P: Tensor) -> Tensor:
        """Returns σ((s_qz − s_qx)/τ) for pairs (q, x) and all z (P×R); ½ for z = x."""
        above_PR = s_BR[query_P] - s_BR[query_P, item_P][:, None]
        return (above_PR / self.temperature).sigmoid()


class SmoothAPLoss(RankingLoss):
    """Smooth-AP: one minus the average precision of smooth ranks, averaged over the queries.

    1 − mean_q mean_x rank among the positives of q / rank among all images, x a positive of q.

    Queries without positives are left out. A query is a positive of its own if `include_self`.
    Pairs excluded by a miner do not count. Classes may differ in size, unlike in
    pytorch-metric-learning's SmoothAPLoss.

    Args:
        temperature: τ > 0, in cosine similarity.
        include_self: whether the query itself is ranked and a positive (the authors' code).

    Raises:
        ValueError: the temperature is not above 0.
    """

    def gains(
        self, s_BR: Tensor, positive_BR: Tensor, negative_BR: Tensor, own_BR: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the average precisions; see `RankingLoss.gains`."""
        positive_BR = positive_BR | own_BR
        query_P, item_P = _entries(positive_BR)
        steps_PR = self.steps(s_BR, query_P, item_P)
        among_positives_P = 0.5 + (steps_PR * positive_BR[query_P]).sum(dim=1)
        rank_P = among_positives_P + (steps_PR * negative_BR[query_P]).sum(dim=1)
        precision_P = among_positives_P / rank_P * positive_BR[query_P, item_P]
        count_B = positive_BR.sum(dim=1)
        total_B = s_BR.new_zeros(len(s_BR)).index_add(0, query_P, precision_P)
        return total_B / count_B.clamp_min(1), count_B > 0


class RecallAtKLoss(RankingLoss):
    """Surrogate of Recall@k: one minus smooth recalls, averaged over values of k and the queries.

    1 − mean_q mean_k min(k, Σ_x σ((k − rank of x)/τ_k)) / min(k, positives of q)

    x runs over the positives of q, without q itself. Queries without positives are left out. Pairs
    excluded by a miner do not count.

    Args:
        temperature: τ > 0 of the ranks, in cosine similarity.
        recall_at: values of k, each at least 1; at most the number of references counts.
        recall_temperatures: τ_k > 0, one for each k.
        include_self: whether the query itself is ranked (the authors' code).

    Raises:
        ValueError: an argument is out of range, or there is not one temperature for each k.
    """

    def __init__(
        self,
        temperature: float = 0.01,
        recall_at: Sequence[int] = (1, 2, 4, 8, 16),
        recall_temperatures: Sequence[float] = (1, 2, 4, 8, 16),
        include_self: bool = True,
    ) -> None:
        super().__init__(temperature, include_self)
        self.recall_at = tuple(check_integer("recall_at", k, at_least=1) for k in recall_at)
        self.recall_temperatures = tuple(
            check_positive("recall_temperatures", one) for one in recall_temperatures
        )
        if not 0 < len(self.recall_at) == len(self.recall_temperatures):
            raise ValueError("recall_temperatures must hold one value for each of recall_at")

    def gains(
        self, s_BR: Tensor, positive_BR: Tensor, negative_BR: Tensor, own_BR: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the recalls, averaged over k; see `RankingLoss.gains`."""
        query_P, item_P = _entries(positive_BR)
        ranked_BR = positive_BR | negative_BR | own_BR
        steps_PR = self.steps(s_BR, query_P, item_P)
        rank_P = 0.5 + (steps_PR * ranked_BR[query_P]).sum(dim=1)
        k_K = rank_P.new_tensor(self.recall_at).clamp_max(s_BR.shape[1])
        tau_K = rank_P.new_tensor(self.recall_temperatures)
        hit_PK = ((k_K - rank_P[:, None]) / tau_K).sigmoid() * positive_BR[query_P, item_P][:, None]
        found_BK = s_BR.new_zeros(len(s_BR), len(k_K)).index_add(0, query_P, hit_PK)
        count_B1 = positive_BR.sum(dim=1, keepdim=True)
        recall_BK = found_BK.minimum(k_K) / count_B1.clamp_min(1).minimum(k_K)
        return recall_BK.mean(dim=1), count_B1.squeeze(1) > 0


def _entries(mask_BR: Tensor) -> tuple[Tensor, Tensor]:
    """Returns rows and columns of the True entries; of all entries if shapes must be known."""
    if reads_values(mask_BR):
        row_P, column_P = mask_BR.nonzero(as_tuple=True)
        return row_P, column_P
    entry_P = torch.arange(mask_BR.numel(), device=mask_BR.device)
    return entry_P // mask_BR.shape[1], entry_P % mask_BR.shape[1]
