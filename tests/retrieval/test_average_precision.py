"""mAP over the full ranking of float64 distances, against scikit-learn."""

from __future__ import annotations

from statistics import fmean

import pytest
import torch
from sklearn.metrics import average_precision_score

from dml.retrieval import mean_average_precision
from tests.retrieval.reference import CASES, ranking


def reference(query, labels, gallery=None, gallery_labels=None) -> float:
    """One query after the other, by scikit-learn."""
    _, order = ranking(query, gallery)
    hits = (labels if gallery_labels is None else gallery_labels)[order] == labels[:, None]
    falling = -torch.arange(order.shape[1])
    return fmean(average_precision_score(row, falling) for row in hits if row.any())


@pytest.mark.parametrize("case", list(CASES))
def test_equals_scikit_learn(case):
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
