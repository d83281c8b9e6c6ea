"""Analyses of Metrix: mixed embeddings, which of them act as positives, and the pull of a loss.

Shapes: B images, D embedding dimensions, V mixes, A anchors, K the largest number of pairs per
anchor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dml.core.errors import UserError
from dml.losses.cosine import unit_rows
from dml.losses.generic.forms import MultiSimilarity
from dml.methods.metrix.metrix import Metrix
from dml.methods.metrix.mixed_pooling import mix
from dml.methods.metrix.mixed_similarity import mixed_similarity
from dml.methods.metrix.mixing_pairs import draw_lambdas
from dml.methods.options import draw_one, require_form
from dml.models.embedder import Embedder
from dml.retrieval.geometry import positivity, predicted_positivity

Batches = Iterable[tuple[Tensor, Tensor]]


@torch.no_grad()
def embed_mixes(method: Metrix, embedder: Embedder, batches: Batches) -> Iterator[Tensor]:
    """Yields the mixed unit embeddings V×D of each batch, without gradients."""
    for images, labels in batches:
        features = embedder.features(images)
        u_BD = unit_rows(embedder.embed(features))[0]
        kind = draw_one(method.types)
        _, sources_SD, pairs = method.select_pairs(u_BD, labels, kind, draw_one(method.pairs[kind]))
        if not len(pairs):
            continue
        lambda_V = draw_lambdas(len(pairs), method.alpha, method.lambda_per, like=u_BD)
        mixed_input = images if kind == "input" else features
        mixed_VD = method.embed_mixed(embedder, kind, mixed_input, pairs, lambda_V)
        if mixed_VD is None:
            mixed_VD = mix(sources_SD, pairs.first, pairs.second, lambda_V)
        yield unit_rows(mixed_VD)[0]


@dataclass(frozen=True)
class Positivity:
    """Share of mixes that act as positives, in equal intervals of λ; NaN for an empty interval.

    Attributes:
        measured: share of mixes with ∂ℓ̃/∂s ≤ 0.
        predicted: the prediction of Eq. 11; None for losses other than multi-similarity.
    """

    measured: Tensor
    predicted: Tensor | None


def measure_positivity(
    loss: nn.Module, embedder: Embedder, batches: Batches, bins: int = 20
) -> Positivity:
    """Returns the share of mixed positive-negative pairs that act as positives (Fig. 2).

    Embeddings are mixed with λ ~ Beta(2, 2) per pair.

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


@dataclass(frozen=True)
class SimilarityChanges:
    """First-order changes of cosine similarities in a gradient step of length 1 on the unit sphere.

    Attributes:
        positive, negative: mean change over the pairs of equal and of different classes.
        positive_share, negative_share: share of these pairs whose similarity increases, 0–1.
    """

    positive: float
    negative: float
    positive_share: float
    negative_share: float


def similarity_changes(
    loss: Callable[[Tensor], Tensor], x_BD: Tensor, labels: Tensor
) -> SimilarityChanges | None:
    """Returns the changes of similarities if the embeddings follow the gradient of a loss.

    A step moves uᵢ by −gᵢ / ‖g‖, where g is the gradient on the sphere (without its part along uᵢ)
    and ‖g‖ its norm over the batch; uᵢ·uⱼ then changes by −(gᵢ·uⱼ + uᵢ·gⱼ) / ‖g‖.

    Args:
        loss: maps embeddings B×D to a scalar.
        x_BD: embeddings of any length; the loss is differentiated at the normalized embeddings.
        labels: labels of the embeddings (B).

    Returns:
        The changes; None if the gradient is zero or there are no positive or no negative pairs.
    """
    u_BD = unit_rows(x_BD.detach().double())[0].requires_grad_()
    (gradient_BD,) = torch.autograd.grad(loss(u_BD), u_BD)
    with torch.no_grad():
        along_B1 = (gradient_BD * u_BD).sum(dim=1, keepdim=True)
        sphere_BD = gradient_BD - along_B1 * u_BD
        norm = sphere_BD.norm()
        same_BB = labels[:, None] == labels
        above = torch.ones_like(same_BB).triu(diagonal=1)  # each pair once
        positive, negative = same_BB & above, ~same_BB & above
        if norm == 0 or not positive.any() or not negative.any():
            return None
        half_BB = -(sphere_BD / norm) @ u_BD.T
        change_BB = half_BB + half_BB.T
        return SimilarityChanges(
            float(change_BB[positive].mean()),
            float(change_BB[negative].mean()),
            float((change_BB[positive] > 0).double().mean()),
            float((change_BB[negative] > 0).double().mean()),
        )
