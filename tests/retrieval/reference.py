"""The float64 ranking and the metrics, slow, as in their definitions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor


def ranking(query: Tensor, gallery: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """All gallery items by squared distance (float64), ties by index, without the query itself."""
    items = query if gallery is None else gallery
    squared = torch.stack([(q.double() - items.double()).square().sum(dim=1) for q in query])
    order = squared.argsort(dim=1, stable=True)
    if gallery is None:
        own = torch.arange(len(query))[:, None]
        order = order[order != own].view(len(query), len(query) - 1)
    return squared.gather(1, order).sqrt(), order


def metrics(
    query: Tensor,
    labels: Tensor,
    gallery: Tensor | None = None,
    gallery_labels: Tensor | None = None,
    recall_at: tuple[int, ...] = (1, 2, 4, 8),
    self_index: list[int] | None = None,
    average: str = "image",
) -> dict[str, float | int]:
    """One query after the other, one rank after the other."""
    _, order = ranking(query, gallery)
    found_labels = labels if gallery_labels is None else gallery_labels
    values: dict[int, list[list[float]]] = {}
    for query_number, (row, label) in enumerate(zip(order.tolist(), labels.tolist(), strict=True)):
        if self_index is not None:
            row = [item for item in row if item != self_index[query_number]]
        hits = [found_labels[i].item() == label for i in row]
        R = sum(hits)
        if R == 0:
            continue
        precisions = [sum(hits[: i + 1]) / (i + 1) for i in range(R) if hits[i]]
        values.setdefault(label, []).append(
            [float(hits[0]), sum(hits[:R]) / R, sum(precisions) / R]
            + [float(any(hits[:K])) for K in recall_at]
            + [max(hit / (i + 1) for i, hit in enumerate(hits[:R]))]
        )
    scored = sum(map(len, values.values()))
    if average == "class":
        rows = [torch.tensor(one, dtype=torch.float64).mean(dim=0) for one in values.values()]
    else:
        rows = [torch.tensor(row, dtype=torch.float64) for one in values.values() for row in one]
    means = torch.stack(rows).mean(dim=0).tolist()
    recalls = [f"recall_at_{K}" for K in recall_at]
    names = ["precision_at_1", "r_precision", "map_at_r", *recalls, "mrr_at_r"]
    counts = {"queries": scored, "queries_without_match": len(labels) - scored}
    return {**dict(zip(names, means, strict=True)), **counts}


# Embeddings that are hard to rank, drawn from a generator.
CASES = {
    "random": lambda g: torch.randn(300, 24, generator=g),
    "unit": lambda g: torch.nn.functional.normalize(torch.randn(300, 64, generator=g)),
    "float64": lambda g: torch.randn(200, 16, generator=g, dtype=torch.float64),
    "half": lambda g: torch.randn(200, 16, generator=g).half(),
    "bfloat16": lambda g: torch.randn(200, 8, generator=g).bfloat16(),
    "far from the origin": lambda g: 1000 + 0.01 * torch.randn(200, 16, generator=g),
    "nearly collapsed": lambda g: torch.ones(200, 32) + 1e-6 * torch.randn(200, 32, generator=g),
    "one point": lambda g: torch.ones(150, 8),
    "all zero": lambda g: torch.zeros(150, 8),
    "grid": lambda g: torch.randint(0, 3, (400, 4), generator=g).float(),
    "signs": lambda g: torch.randint(0, 2, (300, 12), generator=g).float() * 2 - 1,
    "duplicates": lambda g: torch.randn(20, 16, generator=g)[
        torch.randint(0, 20, (300,), generator=g)
    ],
    "tiny values": lambda g: 1e-30 * torch.randn(200, 16, generator=g),
    "large values": lambda g: 1e25 * torch.randn(200, 16, generator=g),
    "one outlier": lambda g: torch.cat([torch.randn(200, 8, generator=g), torch.full((1, 8), 1e6)]),
    "an outlier far from tiny distances": lambda g: torch.cat(
        [torch.full((1, 8), 1e4).double(), 1e-4 * torch.randn(150, 8, generator=g).double()]
    ),
    "tiny clusters far apart": lambda g: (
        torch.randint(0, 2, (200, 1), generator=g) * 1e5
        + 1e-5 * torch.randn(200, 4, generator=g, dtype=torch.float64)
    ),
    "hardly in the range": lambda g: 1e149 * torch.randn(200, 6, generator=g, dtype=torch.float64),
    "one dimension": lambda g: torch.randn(300, 1, generator=g),
}


def clustered(labels, dim, noise, generator):
    """Unit vectors around one random center per class: neighbors are partly right."""
    centers = torch.randn(int(labels.max()) + 1, dim, generator=generator)
    x = centers[labels] + noise * torch.randn(len(labels), dim, generator=generator)
    return torch.nn.functional.normalize(x)


# Labels that are hard to score, each drawn from a generator.
LABELS = {
    "balanced": lambda g: torch.arange(200) % 20,
    "pairs": lambda g: torch.arange(240) // 2,
    "one-image classes": lambda g: torch.cat([torch.arange(50), torch.arange(50) // 5]),
    "very different sizes": lambda g: torch.cat(
        [torch.zeros(150), torch.ones(2), 2 + torch.arange(100) // 4, torch.full((40,), 99)]
    ).long(),
    "random": lambda g: torch.randint(0, 30, (250,), generator=g),
}


def assert_same(found, expected):
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, abs=1e-9), name
