"""Positivity of mixed embeddings: the share that acts as positives, measured and predicted.

Metrix, §3.6 and Figure 2.

Shapes: B images, D embedding dimensions, V mixes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dml.core.errors import UserError
from dml.losses.cosine import unit_rows
from dml.losses.generic.forms import MultiSimilarity
from dml.methods.metrix.metrix import Metrix
from dml.methods.metrix.mixed_embeddings import Batches
from dml.methods.metrix.mixed_similarity import mixed_similarity
from dml.methods.metrix.mixing_pairs import draw_lambdas
from dml.methods.options import require_form
from dml.retrieval.geometry import positivity, predicted_positivity


@dataclass(frozen=True)
class Positivity:
    """Shares of mixes that act as positives, in equal intervals of λ; NaN for an empty interval.

    Attributes:
        measured: share with ∂ℓ̃/∂s ≤ 0.
        predicted: by Eq. 11; None for a loss other than multi-similarity.
    """

    measured: Tensor
    predicted: Tensor | None


def measure_positivity(
    loss: nn.Module, embedder: nn.Module, batches: Batches, bins: int = 20
) -> Positivity:
    """Measures embedding mixup of positives and negatives, with λ ~ Beta(2, 2) per pair (Fig. 2).

    Args:
        loss: has a generic form with samples as anchors, positives and negatives.
        embedder: the network; its mode is not changed.
        batches: images and labels.
        bins: number of intervals of λ.

    Raises:
        UserError: the loss has no such form, or no batch has a positive and a negative.
    """
    form = require_form(loss, "metrix", proxies=False)
    method = Metrix(loss, types=["embed"], pairs=["pos_neg"])
    parts: list[Tensor] = []
    for images, labels in batches:
        with torch.no_grad():
            u_BD = unit_rows(embedder(images))[0].double()
        anchors_AD, sources_SD, pairs = method.select_pairs(u_BD, labels, "embed", "pos_neg")
        if not len(pairs):
            continue
        lambda_V = draw_lambdas(len(pairs), method.alpha, "pair", like=u_BD)
        s_AK = mixed_similarity(anchors_AD, sources_SD, pairs, lambda_V).requires_grad_()
        value = form.loss(s_AK, pairs.labels(lambda_V), pairs.present)
        (slope_AK,) = torch.autograd.grad(value, s_AK)
        present = pairs.present
        parts.append(
            torch.stack(
                [slope_AK[present], s_AK.detach()[present], pairs.labels(lambda_V)[present]]
            )
        )
    if not parts:
        raise UserError("data.batch_size: no batch has a positive and a negative to mix")
    slopes, s, lambdas = torch.cat(parts, dim=1)
    predicted = None
    if isinstance(form, MultiSimilarity):
        predicted = predicted_positivity(
            s, lambdas, beta=form.beta, gamma=form.gamma, margin=form.margin, bins=bins
        )
    return Positivity(positivity(slopes, lambdas, bins), predicted)
