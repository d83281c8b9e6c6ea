"""Positivity of mixed embeddings: how often one acts as a positive, measured and predicted.

Metrix, §3.6 and Figure 2.

Shapes: B images, D embedding dimensions, V mixes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dml.core.errors import UserError
from dml.losses.cosine import unit_rows
from dml.losses.generic_forms import MultiSimilarity
from dml.methods.metrix import Metrix
from dml.methods.metrix_mixes import Batches
from dml.methods.metrix_options import form_of
from dml.methods.metrix_pairs import draw_lambdas
from dml.methods.metrix_similarity import mixed_similarity
from dml.retrieval.geometry import positivity, predicted_positivity


@dataclass(frozen=True)
class Positivity:
    """Shares of mixes that act as positives in equal intervals of λ; NaN where no λ fell.

    Attributes:
        measured: where ∂ℓ̃/∂s ≤ 0.
        predicted: by Eq. 11; None for a loss other than multi-similarity.
    """

    measured: Tensor
    predicted: Tensor | None


def measure_positivity(
    loss: nn.Module, embedder: nn.Module, batches: Batches, bins: int = 20
) -> Positivity:
    """Embedding mixup of positives and negatives, λ drawn per pair from Beta(2, 2) (Fig. 2).

    Args:
        loss: has a generic form with samples as anchors, positives and negatives.
        embedder: the network, in the mode it is in.
        batches: images and labels.
        bins: intervals of λ.

    Raises:
        UserError: the loss has no such form, or no batch holds a positive and a negative.
    """
    form = form_of(loss, "metrix", proxies=False)
    method = Metrix(loss, types=["embed"], pairs=["pos_neg"])
    parts: list[Tensor] = []
    for images, labels in batches:
        with torch.no_grad():
            u_BD = unit_rows(embedder(images))[0].double()
        anchors_AD, sources_SD, plan = method.plan(u_BD, labels, "embed", "pos_neg")
        if not len(plan):
            continue
        lambda_V = draw_lambdas(len(plan), method.alpha, "pair", like=u_BD)
        s_AK = mixed_similarity(anchors_AD, sources_SD, plan, lambda_V).requires_grad_()
        value = form.loss(s_AK, plan.labels(lambda_V), plan.present)
        (slope_AK,) = torch.autograd.grad(value, s_AK)
        there = plan.present
        parts.append(
            torch.stack([slope_AK[there], s_AK.detach()[there], plan.labels(lambda_V)[there]])
        )
    if not parts:
        raise UserError("data.batch_size: no batch holds a positive and a negative to mix")
    slopes, s, lambdas = torch.cat(parts, dim=1)
    predicted = None
    if isinstance(form, MultiSimilarity):
        predicted = predicted_positivity(
            s, lambdas, beta=form.beta, gamma=form.gamma, margin=form.margin, bins=bins
        )
    return Positivity(positivity(slopes, lambdas, bins), predicted)
