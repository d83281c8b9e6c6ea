"""Mixed embeddings of batches, for analyses of the space that Metrix explores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from dml.losses.cosine import unit_rows
from dml.methods.metrix.metrix import Metrix
from dml.methods.metrix.mixed_pooling import mix
from dml.methods.metrix.mixing_pairs import draw_lambdas
from dml.methods.options import draw_one

Batches = Iterable[tuple[Tensor, Tensor]]


@torch.no_grad()
def embed_mixes(method: Metrix, embedder: nn.Module, batches: Batches) -> Iterator[Tensor]:
    """Yields the mixed unit embeddings V×D of each batch, without training the network."""
    for images, labels in batches:
        features = embedder.features(images)  # type: ignore[operator]
        u_BD = unit_rows(embedder.embed(features))[0]  # type: ignore[operator]
        kind = draw_one(method.types)
        _, sources_SD, pairs = method.select_pairs(u_BD, labels, kind, draw_one(method.pairs[kind]))
        if not len(pairs):
            continue
        lambda_V = draw_lambdas(len(pairs), method.alpha, method.lambda_per, like=u_BD)
        given = images if kind == "input" else features
        mixed_VD = method.embed_mixed(embedder, kind, given, pairs, lambda_V)
        if mixed_VD is None:
            mixed_VD = mix(sources_SD, pairs.first, pairs.second, lambda_V)
        yield unit_rows(mixed_VD)[0]
