"""The embeddings that Metrix mixes from batches, for those who measure what it explores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from dml.losses.cosine import unit_rows
from dml.methods.metrix import Metrix
from dml.methods.metrix_options import draw
from dml.methods.metrix_pairs import draw_lambdas
from dml.methods.metrix_pooling import mix

Batches = Iterable[tuple[Tensor, Tensor]]


@torch.no_grad()
def mixed_embeddings(method: Metrix, embedder: nn.Module, batches: Batches) -> Iterator[Tensor]:
    """Yields the unit embeddings V×D that a method mixes from each batch; the network stays."""
    for images, labels in batches:
        features = embedder.features(images)  # type: ignore[operator]
        u_BD = unit_rows(embedder.embed(features))[0]  # type: ignore[operator]
        kind = draw(method.types)
        _, sources_SD, plan = method.plan(u_BD, labels, kind, draw(method.pairs[kind]))
        if not len(plan):
            continue
        lambda_V = draw_lambdas(len(plan), method.alpha, method.lambda_per, like=u_BD)
        given = images if kind == "input" else features
        mixed_VD = method.mixed_embeddings(embedder, kind, given, plan, lambda_V)
        if mixed_VD is None:
            mixed_VD = mix(sources_SD, plan.first, plan.second, lambda_V)
        yield unit_rows(mixed_VD)[0]
