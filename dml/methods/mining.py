"""Pairs and triplets of a miner: in a batch, or between a batch and references.

Shapes: B images in a batch, D embedding dimensions, R references.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Miner = Callable[..., Any]


def mine_pairs(
    miner: Miner,
    embeddings: Tensor,
    labels: Tensor,
    references: tuple[Tensor, Tensor] | tuple[()] = (),
) -> Any:
    """Returns the pairs or triplets of a miner; tuples without a pair if it returns nothing.

    Args:
        miner: called as `miner(embeddings, labels)`, with references as `miner(embeddings, labels,
            ref_emb, ref_labels)`.
        embeddings: B×D.
        labels: B integers.
        references: R×D embeddings and R labels; empty: the batch itself.
    """
    mined = miner(embeddings, labels, *references)
    is_empty = mined is None or (isinstance(mined, tuple | list) and not mined)
    if is_empty:  # for a loss, None would mean all pairs
        return (labels.new_empty(0, dtype=torch.long),) * 4
    return mined


def drop_self_pairs(mined: Any, self_index: Tensor) -> tuple[Tensor, ...]:
    """Returns mined pairs or triplets without those of an embedding and its copy.

    Args:
        mined: pairs (4 tensors) or triplets (3 tensors) between a batch and references.
        self_index: row of each embedding in the references (B); −1: it has no copy there.

    Raises:
        ValueError: the tuple has neither 3 nor 4 tensors.
    """
    if len(mined) not in (3, 4):
        raise ValueError(
            f"the miner must return 3 tensors (anchors, positives, negatives) or 4 "
            f"(anchors, positives, anchors, negatives); it returned {len(mined)}"
        )
    anchors, positives, *others = mined
    kept = (positives != self_index[anchors]).nonzero().squeeze(1)  # a GPU is waited for once
    if len(mined) == 3:
        return anchors[kept], positives[kept], others[0][kept]
    return anchors[kept], positives[kept], *others
