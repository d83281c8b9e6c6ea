"""Pairs and triplets of a miner: in a batch, or between a batch and references.

Shapes: B images in a batch, D embedding dimensions, R references.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dml.core.errors import ConfigError

Miner = Callable[..., Any]
FORMS = (
    "3 tensors of positions (anchors, positives, negatives) or 4 (anchors, positives, anchors, "
    "negatives), or nothing"
)


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

    Raises:
        ConfigError: it returns something else.
    """
    mined = miner(embeddings, labels, *references)
    is_tuple = isinstance(mined, tuple | list)
    if mined is None or (is_tuple and not mined):  # for a loss, None would mean all pairs
        return (labels.new_empty(0, dtype=torch.long),) * 4
    if not is_tuple:
        raise _wrong_tuple(f"a {type(mined).__name__}")
    _check_tuple(mined)
    return mined


def _check_tuple(mined: Sequence[Any]) -> None:
    """Raises ConfigError unless a tuple holds pairs or triplets."""
    if len(mined) not in (3, 4):
        raise _wrong_tuple(f"{len(mined)} objects")
    for part in mined:
        _check_positions(part)
    lengths = [len(part) for part in mined]
    pairs = [lengths] if len(mined) == 3 else [lengths[:2], lengths[2:]]
    if any(len(set(equal)) > 1 for equal in pairs):
        raise _wrong_tuple(f"tensors of the lengths {', '.join(map(str, lengths))}")


def _check_positions(part: Any) -> None:
    """Raises ConfigError unless an object is a tensor of integers."""
    if not isinstance(part, Tensor):
        raise _wrong_tuple(f"a {type(part).__name__} among them")
    if part.ndim != 1 or part.is_floating_point() or part.dtype == torch.bool:
        raise _wrong_tuple(f"a tensor of {part.dtype} and shape {list(part.shape)} among them")


def _wrong_tuple(returned: str) -> ConfigError:
    return ConfigError([f"loss.miner: must return {FORMS}; it returned {returned}"])


def drop_self_pairs(mined: Any, self_index: Tensor) -> tuple[Tensor, ...]:
    """Returns mined pairs or triplets without those of an embedding and its copy.

    Args:
        mined: pairs (4 tensors) or triplets (3 tensors) of `mine_pairs`, with references.
        self_index: row of each embedding in the references (B); −1: it has no copy there.
    """
    anchors, positives, *others = mined
    kept = (positives != self_index[anchors]).nonzero().squeeze(1)  # a GPU is waited for once
    if len(mined) == 3:
        return anchors[kept], positives[kept], others[0][kept]
    return anchors[kept], positives[kept], *others
