"""mAP over the full ranking, against its definition in float64."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import average_precision_score

from dml.retrieval.average_precision import mean_average_precision
from tests.retrieval.reference import CASES, ranking


def reference(query, labels, gallery=None, gallery_labels=None) -> float:
    """One query after the other, one rank after the other."""
    _, order = ranking(query, gallery)
    found = labels if gallery_labels is None else gallery_labels
    values = []
    for row, label in zip(order.tolist(), labels.tolist(), strict=True):
        hits = [found[i].item() == label for i in row]
        precisions = [sum(hits[: i + 1]) / (i + 1) for i in range(len(hits)) if hits[i]]
        if precisions:
            values.append(sum(precisions) / len(precisions))
    return sum(values) / len(values)


@pytest.mark.parametrize("case", list(CASES))
def test_equals_the_definition(case):
    generator = torch.Generator().manual_seed(0)
    points = CASES[case](generator)
    labels = torch.randint(0, 9, (len(points),), generator=generator)
    assert mean_average_precision(points, labels) == pytest.approx(reference(points, labels))


@pytest.mark.parametrize("case", ["unit", "grid"])
def test_queries_against_a_gallery(case):
    generator = torch.Generator().manual_seed(1)
    points = CASES[case](generator)
    labels = torch.randint(0, 40, (len(points),), generator=generator)
    labels[0] = 99  # of a query without a relevant item
    parts = points[:60], labels[:60], points[60:], labels[60:]
    expected = reference(*parts)
    for memory_mb in (64.0, 0.01):  # one chunk, then a few queries each
        assert mean_average_precision(*parts, memory_mb=memory_mb) == pytest.approx(expected)


def test_equals_scikit_learn():
    generator = torch.Generator().manual_seed(2)
    points, labels = CASES["random"](generator).double(), torch.arange(300) % 6
    distances = torch.cdist(points, points)
    values = []
    for row in range(len(points)):
        others = torch.arange(len(points)) != row
        hits = (labels == labels[row])[others]
        values.append(average_precision_score(hits.numpy(), -distances[row][others].numpy()))
    expected = sum(values) / len(values)
    assert mean_average_precision(points, labels) == pytest.approx(expected, abs=1e-12)
