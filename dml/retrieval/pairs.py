"""What the measures of geometry share: distances of all pairs, and the items of each class.

Shapes: N items, D dimensions, n rows and c columns of a tile, P pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from dml.retrieval.exact.order import first_equal_items, score_error, squared_distances
from dml.retrieval.inputs import ArrayLike, check_embeddings, check_labels

TILE = 1024
FLOAT64_UNIT = 2.0**-53
ACCURACY = 2.0**-26  # relative, of squared distances, which are compared in float32


def check_at_least_two(embeddings: ArrayLike) -> Tensor:
    """Returns the checked embeddings N×D; raises ValueError if N < 2."""
    points = check_embeddings(embeddings, "embeddings")
    if len(points) < 2:
        raise ValueError("embeddings: a single item has no pairs")
    return points


def distance_tiles(
    embeddings_ND: Tensor, *, keep_shape: bool = False
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yields tiles of squared distances that contain every pair once.

    A tile on the diagonal is reduced to its pairs i < j, unless `keep_shape` is set. Products are
    fast, but inaccurate for items that are near each other and far from the center: these are
    compared by their differences.
    """
    first_N = first_equal_items(embeddings_ND)
    center = embeddings_ND.mean(dim=0, dtype=torch.float64)
    starts = range(0, len(embeddings_ND), TILE)
    for row in starts:
        rows_nD = embeddings_ND[row : row + TILE].double() - center
        for column in starts[row // TILE :]:
            columns_cD = embeddings_ND[column : column + TILE].double() - center
            squared = _squares(rows_nD, columns_cD)
            differ = first_N[row : row + TILE, None] != first_N[column : column + TILE]
            squared.masked_fill_(~differ, 0)
            inaccurate = differ & (squared < _least_accurate(rows_nD, columns_cD))
            places_P, others_P = inaccurate.nonzero(as_tuple=True)
            squared[places_P, others_P] = squared_distances(
                embeddings_ND, embeddings_ND, places_P + row, others_P + column
            )[: len(places_P)]
            if row == column and not keep_shape:
                above = torch.ones_like(squared, dtype=torch.bool).triu_(diagonal=1)
                squared = squared[above]
            if squared.numel():
                yield slice(row, row + TILE), slice(column, column + TILE), squared


def _squares(rows_nD: Tensor, columns_cD: Tensor) -> Tensor:
    """Returns squared distances by products (n×c)."""
    squares = torch.addmm(columns_cD.square().sum(dim=1), rows_nD, columns_cD.T, alpha=-2)
    return squares.add_(rows_nD.square().sum(dim=1)[:, None]).clamp_(min=0)


def _least_accurate(rows_nD: Tensor, columns_cD: Tensor) -> Tensor:
    """Returns the value from which `_squares` are accurate (n×c)."""
    lengths_n1, dim = rows_nD.norm(dim=1, keepdim=True), rows_nD.shape[1]
    return score_error(lengths_n1, columns_cD.norm(dim=1), dim, FLOAT64_UNIT) * (2 / ACCURACY)


def direct_distances(a_nD: Tensor, b_mD: Tensor) -> Tensor:
    """Returns Euclidean distances (n×m) by direct differences."""
    return torch.cdist(a_nD, b_mD, compute_mode="donot_use_mm_for_euclid_dist")


def items_by_label(labels: Tensor) -> dict[int, Tensor]:
    """Returns label → indices of its items."""
    order = labels.argsort(stable=True)
    values, counts = labels.unique(return_counts=True)
    return dict(zip(values.tolist(), order.split(counts.tolist()), strict=True))


def embeddings_by_class(embeddings: ArrayLike, labels: ArrayLike) -> Iterator[Tensor]:
    """Yields the embeddings of each class, in float64."""
    points = check_embeddings(embeddings, "embeddings")
    classes = check_labels(labels, len(points), "labels").to(points.device)
    for members in items_by_label(classes).values():
        yield points[members].double()
