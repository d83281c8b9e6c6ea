"""mAP over the full ranking of float64 distances, against scikit-learn."""

from __future__ import annotations

from statistics import fmean

import pytest
import torch
from sklearn.metrics import average_precision_score
from torch.profiler import ProfilerActivity, profile

from dml.retrieval import mean_average_precision, metrics, retrieval_metrics
from dml.retrieval.exact import average_precision, full_ranking, scaled_gallery
from tests.retrieval.reference import CASES, ranking


def reference(
    query, labels, gallery=None, gallery_labels=None, self_index=None, average="image"
) -> float:
    """One query after the other, by scikit-learn."""
    _, order = ranking(query, gallery)
    found = labels if gallery_labels is None else gallery_labels
    values: dict[int, list[float]] = {}
    for number, (row, label) in enumerate(zip(order, labels.tolist(), strict=True)):
        if self_index is not None:
            row = row[row != self_index[number]]
        hits = found[row] == label
        if hits.any():
            precision = average_precision_score(hits, -torch.arange(len(row)))
            values.setdefault(label, []).append(precision)
    if average == "class":
        return fmean(map(fmean, values.values()))
    return fmean(value for part in values.values() for value in part)


@pytest.fixture(params=["counted", "sorted", "whichever is faster"])
def way(request, monkeypatch):
    """By counting closer items, also where a sort is faster; by a sort; or as it is chosen."""
    if request.param == "counted":
        monkeypatch.setattr(average_precision, "FEW_RELEVANT", 10**9)
        monkeypatch.setattr(average_precision, "MOST_OPEN", 10**9)
        monkeypatch.setattr(metrics, "FullRanking", None)  # a call would raise
        monkeypatch.setattr(scaled_gallery, "TILE", 32)
    if request.param == "sorted":
        monkeypatch.setattr(average_precision, "FEW_RELEVANT", 0)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("case", list(CASES))
def test_equals_scikit_learn(case):
    generator = torch.Generator().manual_seed(0)
    points = CASES[case](generator)
    labels = torch.randint(0, 9, (len(points),), generator=generator)
    assert mean_average_precision(points, labels) == pytest.approx(reference(points, labels))


@pytest.mark.usefixtures("way")
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


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("average", ["image", "class"])
@pytest.mark.parametrize("case", ["unit", "duplicates", "tiny clusters far apart"])
def test_queries_in_the_gallery_and_means_of_classes(case, average):
    generator = torch.Generator().manual_seed(2)
    points = CASES[case](generator)
    labels = torch.randint(0, 9, (len(points),), generator=generator)
    rows = torch.randperm(len(points), generator=generator)[:70]
    index = torch.where(torch.arange(70) % 3 == 0, -1, rows)
    parts = points[rows], labels[rows], points, labels
    found = mean_average_precision(*parts, self_index=index, average=average)
    assert found == pytest.approx(reference(*parts, index.tolist(), average))


def test_all_queries_in_the_gallery_are_the_gallery():
    generator = torch.Generator().manual_seed(3)
    points, labels = torch.randn(50, 4, generator=generator), torch.arange(50) % 7
    both = mean_average_precision(points, labels, points, labels, self_index=torch.arange(50))
    assert both == pytest.approx(mean_average_precision(points, labels), abs=1e-15)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"average": "median"}, "average must be 'image' or 'class'"),
        ({"self_index": [0, 1]}, "self_index must be None without"),
    ],
)
def test_options_that_are_refused(options, message):
    for score in (mean_average_precision, retrieval_metrics):
        with pytest.raises(ValueError, match=message):
            score(torch.eye(2), [0, 0], **options)


@pytest.mark.parametrize("score", [mean_average_precision, retrieval_metrics])
def test_widths_that_differ(score):
    with pytest.raises(ValueError, match="one dimension, got 2 and 3"):
        score(torch.eye(2), [0, 1], torch.eye(3), [0, 1, 2])


def test_the_ranking_of_equal_items_compares_few_pairs(monkeypatch):
    compared = []

    def count(query, gallery, rows, columns):
        compared.append(len(rows))
        return squared_distances(query, gallery, rows, columns)

    squared_distances = full_ranking.squared_distances
    monkeypatch.setattr(full_ranking, "squared_distances", count)
    labels = torch.arange(120) % 5
    mean_average_precision(torch.ones(120, 3), labels)
    assert sum(compared) == 120  # each query with one of the equal items
    compared.clear()
    generator = torch.Generator().manual_seed(0)
    mean_average_precision(torch.randn(120, 16, generator=generator), labels)
    assert not sum(compared)


def test_working_memory_is_bounded():
    """The largest tensor of a pair is below the bound, for embeddings that are all near ties."""
    generator = torch.Generator().manual_seed(4)
    points = 1e5 + 1e-11 * torch.randn(1500, 4, generator=generator, dtype=torch.float64)
    labels = torch.arange(1500) % 5
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        found = mean_average_precision(points, labels, memory_mb=4)
    held = peak = 0
    for event in measured.events():
        if event.name == "[memory]":
            held += event.cpu_memory_usage
            peak = max(peak, held)
    assert peak <= 4 * 2**20 * 1.25
    assert found == pytest.approx(mean_average_precision(points, labels))
