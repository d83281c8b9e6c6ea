"""Classes of queries by references: the references of a class, and the order of the errors."""

import numpy as np
import pytest
import torch

from dml.core.errors import UserError
from dml.retrieval import class_mean_accuracy, neighbor_accuracy
from dml.retrieval.embeddings import SplitEmbeddings
from dml.retrieval.identification import identify


def split(seed: int, count: int, classes: int) -> SplitEmbeddings:
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    return SplitEmbeddings(points, torch.randint(classes, (count,), generator=generator))


def nearest(point, label, references):
    """Compares one by one."""
    best, row = np.inf, -1
    for number, other in enumerate(references.query):
        distance = float((point - other).norm())
        if references.query_labels[number] == label and distance < best:
            best, row = distance, number
    return row, best


def test_references_are_the_nearest_of_their_class():
    queries, references = split(0, 40, 6), split(1, 30, 5)  # nothing stands for class 5
    made = identify(queries, references, neighbors=3)
    for part in made:
        for row, label in enumerate(part.labels):
            expected, distance = nearest(queries.query[row], label, references)
            assert part.rows[row] == expected
            if expected >= 0:
                assert part.distances[row] == pytest.approx(distance, rel=1e-9)
    is_unknown = queries.query_labels.numpy() == 5
    assert is_unknown.any()
    assert (made.right.rows == -1).tolist() == is_unknown.tolist()


def test_shares_of_right_classes_are_the_accuracies():
    queries, references = split(2, 50, 4), split(3, 40, 4)
    made = identify(queries, references, neighbors=3)
    parts = (*queries[:2], *references[:2])
    right = queries.query_labels.numpy()
    assert (made.right.labels == right).all()
    assert (made.by_mean.labels == right).mean() == class_mean_accuracy(*parts)
    assert (made.by_neighbors.labels == right).mean() == neighbor_accuracy(*parts, 3)


def test_the_most_certain_errors_are_first():
    references = SplitEmbeddings(torch.tensor([[0.0], [10.0]]), torch.tensor([0, 1]))
    queries = SplitEmbeddings(
        torch.tensor([[1.0], [4.0], [9.0], [6.0], [2.0]]), torch.tensor([0, 1, 0, 0, 7])
    )
    made = identify(queries, references, lambda means: means, neighbors=1)
    assert made.is_wrong.tolist() == [False, True, True, True, True]
    assert made.rank_wrong().tolist() == [4, 2, 1, 3]  # 4: no reference has its class


def test_values_that_are_not_finite_are_refused():
    queries = SplitEmbeddings(torch.tensor([[torch.nan]]), torch.tensor([0]))
    references = SplitEmbeddings(torch.tensor([[0.0]]), torch.tensor([0]))
    with pytest.raises(UserError, match="evaluation"):
        identify(queries, references)
