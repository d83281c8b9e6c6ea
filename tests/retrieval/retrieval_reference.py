"""Slow and plain: the float64 ranking and the metrics, straight from their definitions."""

from __future__ import annotations

import torch
from torch import Tensor


def ranking(query: Tensor, gallery: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """All gallery items by squared distance (float64), ties by index; own item left out."""
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
) -> dict[str, float | int]:
    """One query after the other, one rank after the other."""
    _, order = ranking(query, gallery)
    found_labels = labels if gallery_labels is None else gallery_labels
    values: list[list[float]] = []
    for row, label in zip(order.tolist(), labels.tolist(), strict=True):
        hits = [found_labels[i].item() == label for i in row]
        R = sum(hits)
        if R == 0:
            continue
        precisions = [sum(hits[: i + 1]) / (i + 1) for i in range(R) if hits[i]]
        values.append(
            [float(hits[0]), sum(hits[:R]) / R, sum(precisions) / R]
            + [float(any(hits[:K])) for K in recall_at]
        )
    means = torch.tensor(values, dtype=torch.float64).mean(dim=0).tolist()
    names = ["precision_at_1", "r_precision", "map_at_r", *(f"recall_at_{K}" for K in recall_at)]
    counts = {"queries": len(values), "queries_without_match": len(labels) - len(values)}
    return {**dict(zip(names, means, strict=True)), **counts}
