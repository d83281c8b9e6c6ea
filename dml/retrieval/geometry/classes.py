"""Items grouped by class."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from dml.retrieval.inputs import check_embeddings, check_labels


def items_by_label(labels: Tensor) -> dict[int, Tensor]:
    """Returns the indices of the items of each label."""
    order = labels.argsort(stable=True)
    values, counts = labels.unique(return_counts=True)
    return dict(zip(values.tolist(), order.split(counts.tolist()), strict=True))


def embeddings_by_class(embeddings: Tensor, labels: Tensor) -> Iterator[Tensor]:
    """Yields the embeddings of each class in turn, in float64."""
    embeddings = check_embeddings(embeddings, "embeddings")
    check_labels(labels, len(embeddings), "labels")
    for members in items_by_label(labels.to(embeddings.device)).values():
        yield embeddings[members].double()
