"""Items class by class."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from dml.retrieval.inputs import check_embeddings, check_labels


def items_by_label(labels: Tensor) -> dict[int, Tensor]:
    """Maps each label to the numbers of its items."""
    order = labels.argsort(stable=True)
    values, counts = labels.unique(return_counts=True)
    return dict(zip(values.tolist(), order.split(counts.tolist()), strict=True))


def members_of_classes(embeddings: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """Yields the embeddings of one class after the other, in float64."""
    embeddings = check_embeddings(embeddings, "embeddings")
    check_labels(labels, len(embeddings), "labels")
    for members in items_by_label(labels.to(embeddings.device)).values():
        yield embeddings[members].double()
