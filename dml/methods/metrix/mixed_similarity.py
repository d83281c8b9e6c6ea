"""Similarities of mixed embeddings to anchors and to proxies.

Embedding mixup builds no mixed embeddings: with v = (λ u_i + (1 − λ) u_j) / ‖…‖, the similarity
a·v follows from a·u_i, a·u_j and u_i·u_j.

Shapes: B images, D embedding dimensions, C classes, A anchors, S sources of mixes, V distinct
pairs, K the largest number of pairs per anchor.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dml.losses.cosine import cosine_similarity
from dml.losses.generic.forms import Form
from dml.methods.metrix.mixed_pooling import mix
from dml.methods.metrix.mixing_pairs import MixingPairs

CHUNK = 2**24  # similarities of mixes and proxies computed at a time


def mixed_similarity(
    anchors_AD: Tensor, sources_SD: Tensor, pairs: MixingPairs, lambda_V: Tensor
) -> Tensor:
    """Returns the similarity of each unit anchor to its mixes of unit sources (A×K)."""
    s_AS = anchors_AD @ sources_SD.T
    first_AK, second_AK = pairs.first[pairs.of_anchor], pairs.second[pairs.of_anchor]
    lambda_AK = lambda_V[pairs.of_anchor]
    along_AK = torch.lerp(s_AS.gather(1, second_AK), s_AS.gather(1, first_AK), lambda_AK)
    length_V = mixed_norms(sources_SD @ sources_SD.T, pairs.first, pairs.second, lambda_V)
    return along_AK / length_V[pairs.of_anchor]


def mixed_norms(gram_SS: Tensor, first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """Returns ‖λ u_first + (1 − λ) u_second‖, at least 1e-3, from the Gram matrix.

    `first`, `second`, λ (`weight`) and the result have the same shape.
    """
    co_weight = 1 - weight
    squared = weight.square() * gram_SS[first, first] + co_weight.square() * gram_SS[second, second]
    return (squared + 2 * weight * co_weight * gram_SS[first, second]).clamp_min(1e-6).sqrt()


def compute_mixed_proxy_loss(
    form: Form,
    proxies_CD: Tensor,
    u_BD: Tensor,
    mixed_VD: Tensor | None,
    labels: Tensor,
    pairs: MixingPairs,
    lambda_V: Tensor,
) -> Tensor:
    """Returns the mean loss of mixes as anchors, with proxies as positives and negatives.

    Args:
        form: a form with `others` = "proxies".
        proxies_CD: proxies of any length.
        u_BD: unit embeddings of the samples.
        mixed_VD: unit embeddings of the mixes; None: mixes of `u_BD`.
        labels: labels of the samples.
        pairs: the mixed pairs of samples.
        lambda_V: λ, weight of the first.
    """
    first_V, second_V = pairs.first, pairs.second
    classes = len(proxies_CD)
    if mixed_VD is None:
        s_BC = cosine_similarity(u_BD, proxies_CD)
        length_V1 = mixed_norms(u_BD @ u_BD.T, first_V, second_V, lambda_V)[:, None]

    def part(rows: slice) -> Tensor:
        weight_v1 = lambda_V[rows, None]
        if mixed_VD is None:
            s_vC = mix(s_BC, first_V[rows], second_V[rows], lambda_V[rows])
            s_vC = s_vC / length_V1[rows]
        else:
            s_vC = cosine_similarity(mixed_VD[rows], proxies_CD)
        y_vC = torch.zeros_like(s_vC, requires_grad=False)
        y_vC.scatter_(1, labels[first_V[rows], None], weight_v1)
        y_vC.scatter_add_(1, labels[second_V[rows], None], 1 - weight_v1)
        everything_vC = torch.ones_like(y_vC, dtype=torch.bool)
        return form.loss(s_vC, y_vC, everything_vC) * len(s_vC) / len(pairs)

    rows = max(1, CHUNK // classes)
    chunks = [slice(start, start + rows) for start in range(0, len(pairs), rows)]
    if len(chunks) == 1:
        return part(chunks[0])
    # With thousands of proxies a chunk is recomputed in the backward pass instead of stored.
    parts = [checkpoint(part, rows, use_reentrant=False) for rows in chunks]
    return torch.stack(parts).sum()
