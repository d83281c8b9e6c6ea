"""Pairs and triplets in the tuples of pytorch-metric-learning's miners and wrappers.

Triplets are 3 tensors (anchors, positives, negatives), pairs are 4 (anchors, positives, anchors,
negatives). Anchors are positions in the batch; positives and negatives are positions in the
references, or in the batch if there are no references.

Shapes: B images in a batch, R references.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dml.losses.arguments import ValueChecks, reads_values

Mined = tuple[Tensor, ...]


def check_mined(
    indices_tuple: Any, anchors: int, others: int, like: Tensor, checks: ValueChecks
) -> Mined | None:
    """Returns the tensors of a tuple as int64 on the device of `like`; None without a miner.

    Args:
        indices_tuple: triplets or pairs.
        anchors: B.
        others: R, or B without references.
        like: the embeddings.
        checks: receives the check that all positions are in the batch or the references.

    Raises:
        ValueError: the tuple has neither 3 nor 4 tensors.
    """
    if indices_tuple is None:
        return None
    if len(indices_tuple) not in (3, 4):
        raise ValueError(
            "indices_tuple must be 3 tensors of integers (anchors, positives, negatives) or 4 "
            "(anchors, positives, anchors, negatives), as the miners of pytorch-metric-learning "
            "return them"
        )
    mined = tuple(part.to(like.device, torch.long) for part in indices_tuple)
    if reads_values(like):
        limits = (anchors, others, *([others] if len(mined) == 3 else [anchors, others]))
        outside = [
            ((part < 0) | (part >= limit)).any() for part, limit in zip(mined, limits, strict=True)
        ]
        message = (
            f"indices_tuple must hold positions in the {anchors} embeddings and, for positives and "
            f"negatives, in the {others} they are compared with"
        )
        checks.add(torch.stack(outside).any(), lambda: message)
        if like.is_cuda:
            mined = tuple(
                part.clamp(0, limit - 1) for part, limit in zip(mined, limits, strict=True)
            )
    return mined


def mined_masks(mined: Mined, anchors: int, others: int) -> tuple[Tensor, Tensor]:
    """Returns the masks of the positive and of the negative pairs in a tuple (both B×R).

    Duplicate pairs are counted once.
    """
    a1, positives, a2, negatives = mined if len(mined) == 4 else (*mined[:2], mined[0], mined[2])
    masks = a1.new_zeros(2, anchors * others, dtype=torch.bool)
    masks[0].index_fill_(0, a1 * others + positives, True)  # masks[0, i] = True would copy the True
    masks[1].index_fill_(0, a2 * others + negatives, True)
    return masks[0].view(anchors, others), masks[1].view(anchors, others)


def image_weights(mined: Mined, images: int, like: Tensor, only_anchors: bool) -> Tensor:
    """Returns the weights of the images in [0, 1] (B): their counts in a tuple over the maximum.

    Proxy losses of pytorch-metric-learning use the same weights. All are 1 if the tuple is empty.

    Args:
        mined: positions in a batch.
        images: B.
        like: the embeddings, for type and device.
        only_anchors: do not count positives and negatives.
    """
    counted = list(mined)
    if only_anchors:
        is_pairs = len(mined) == 4  # (anchors, positives, anchors, negatives), or a triplet
        counted = [mined[0], mined[2]] if is_pairs else [mined[0]]
    named = torch.cat(counted)
    if not len(named):
        return like.new_ones(images)
    count = like.new_zeros(images).index_add_(0, named, like.new_ones(len(named)))
    return count / count.max()
