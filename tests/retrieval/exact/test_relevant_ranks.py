"""The number of items closer than the nearest relevant item."""

import pytest
import torch

from dml.retrieval import metrics, retrieval_metrics
from dml.retrieval.exact import scaled_gallery, search
from tests.retrieval import reference
from tests.retrieval.reference import LABELS, assert_same, clustered

EMBEDDINGS = {
    "clustered": lambda y, g: clustered(y, 16, 1.0, g),
    "noise": lambda y, g: torch.randn(len(y), 8, generator=g),
    "grid": lambda y, g: torch.randint(0, 3, (len(y), 3), generator=g).float(),
    "one point": lambda y, g: torch.ones(len(y), 4),
    "float64 near ties": lambda y, g: 1 + 1e-9 * torch.randn(len(y), 4, generator=g).double(),
}


@pytest.mark.parametrize("labels_case", ["pairs", "one-image classes", "very different sizes"])
@pytest.mark.parametrize("case", EMBEDDINGS)
@pytest.mark.parametrize("split", [False, True])
def test_counted_ranks_equal_listed_ones(case, labels_case, split, generator, monkeypatch):
    monkeypatch.setattr(metrics, "MAX_LISTED", 1)
    monkeypatch.setattr(scaled_gallery, "TILE", 32)
    labels = LABELS[labels_case](generator)
    if labels_case == "very different sizes":
        labels = labels[labels != 0]
    embeddings = EMBEDDINGS[case](labels, generator)
    order = torch.randperm(len(labels), generator=generator)
    arguments = (embeddings[order], labels[order])
    if split:
        query, gallery = order[:80], order[80:]
        arguments = (embeddings[query], labels[query], embeddings[gallery], labels[gallery])
    recall_at = (1, 3, 20, 50, 100, 150, 1000)
    found = retrieval_metrics(*arguments, recall_at=recall_at, reciprocal_rank=True)
    assert_same(found, reference.metrics(*arguments, recall_at=recall_at))


def test_counting_takes_as_many_queries_at_once_as_memory_allows(generator, monkeypatch):
    """In a collapsed embedding, all items of a tile may precede the nearest relevant item."""
    seen = []
    count = search.count_closer

    def watched(gallery, gallery_ND, query_nD, *arguments):
        seen.append(len(query_nD) * gallery.tile)
        return count(gallery, gallery_ND, query_nD, *arguments)

    monkeypatch.setattr(search, "count_closer", watched)
    embeddings, labels = torch.ones(300, 4), torch.arange(300) // 10
    expected = reference.metrics(embeddings, labels, recall_at=(1, 150))
    for memory_mb, most in ((64.0, 10**9), (0.1, 0.1 * 2**20 / search.PAIR_BYTES)):
        seen.clear()
        options = {"recall_at": (1, 150), "reciprocal_rank": True, "memory_mb": memory_mb}
        found = retrieval_metrics(embeddings, labels, **options)
        assert_same(found, expected)
        assert 0 < max(seen) <= most
