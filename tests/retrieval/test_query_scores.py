import numpy as np
import pytest
import torch

from dml.core.errors import UserError
from dml.retrieval import query_scores
from dml.retrieval.embeddings import SplitEmbeddings
from dml.retrieval.query_scores import score_queries


def make_split(kind):
    """60 queries of a split, some without a match, some equal."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(60, 4, generator=generator)
    query[7] = query[20]
    labels = torch.arange(60) % 13
    labels[59] = 99
    if kind == "one set":
        return SplitEmbeddings(query, labels)
    if kind == "large classes":
        return SplitEmbeddings(query, torch.arange(60) % 3)
    gallery = torch.cat([torch.randn(30, 4, generator=generator), query])
    gallery_labels = torch.cat([torch.arange(30) % 11, labels])
    if kind == "gallery":
        return SplitEmbeddings(query, labels, gallery, gallery_labels)
    self_index = torch.arange(60) + 30
    self_index[::3] = -1
    return SplitEmbeddings(query, labels, gallery, gallery_labels, self_index)


def full_order(split, row):
    """The gallery of a query by distance, without itself, and all distances."""
    gallery = split.query if split.gallery is None else split.gallery
    squared = ((gallery.double() - split.query[row].double()) ** 2).sum(1).numpy()
    itself = row if split.gallery is None else -1
    if split.self_index is not None:
        itself = int(split.self_index[row])
    order = np.argsort(squared, kind="stable")
    return order[order != itself], np.sqrt(squared)


@pytest.mark.parametrize("kind", ["one set", "large classes", "gallery", "self_index"])
def test_every_query_against_a_full_sort(kind, monkeypatch):
    monkeypatch.setattr(query_scores, "CHUNK", 7)
    split = make_split(kind)
    scores = score_queries(split, k=5)
    longest = score_queries(split, k=1000).nearest  # all that every query can find
    labels = split.query_labels if split.gallery_labels is None else split.gallery_labels
    for row in range(len(split.query)):
        order, distances = full_order(split, row)
        hits = (labels == split.query_labels[row]).numpy()[order]
        assert scores.nearest[row].tolist() == order[:5].tolist()
        assert longest[row].tolist() == order[: longest.shape[1]].tolist()
        assert longest.shape[1] >= len(labels) - 1
        assert scores.distances[row] == pytest.approx(distances[order[:5]])
        assert scores.relevant[row] == hits.sum()
        if not hits.any():
            assert (scores.first_rank[row], scores.right[row]) == (0, -1)
            assert np.isnan([scores.map_at_r[row], scores.right_distance[row]]).all()
            continue
        precision = hits.cumsum() / np.arange(1, len(hits) + 1)
        relevant = hits.sum()
        assert scores.map_at_r[row] == pytest.approx((precision * hits)[:relevant].sum() / relevant)
        assert scores.r_precision[row] == pytest.approx(hits[:relevant].mean())
        assert scores.precision_at_1[row] == hits[0]
        assert scores.first_rank[row] == 1 + hits.argmax()
        assert labels[scores.right[row]] == split.query_labels[row] != labels[scores.wrong[row]]
        assert scores.right_distance[row] == pytest.approx(distances[order[hits.argmax()]])
        assert scores.wrong_distance[row] == pytest.approx(distances[order[hits.argmin()]])


@pytest.mark.parametrize("kind", ["one set", "large classes", "gallery", "self_index"])
def test_means_are_those_of_the_evaluation(kind):
    split = make_split(kind)
    scores, summary = score_queries(split), split.score([1])
    assert scores.has_match.sum() == summary["queries"]
    for name in ("precision_at_1", "r_precision", "map_at_r"):
        assert np.nanmean(getattr(scores, name)) == pytest.approx(summary[name], abs=1e-9)


def test_the_worst_queries_come_first():
    """By MAP@R; equal ones by how much nearer the wrong item is than the right one."""
    points = torch.tensor([[0.0], [9.0], [1.0], [100.0], [100.4], [103.0]])
    scores = score_queries(SplitEmbeddings(points, torch.tensor([0, 0, 1, 2, 3, 2])))
    assert scores.map_at_r[scores.has_match].tolist() == [0, 0, 0, 0]
    margins = scores.right_distance - scores.wrong_distance
    assert margins[[0, 1, 3, 5]] == pytest.approx([8, 1, 2.6, 0.4], abs=1e-4)
    assert scores.rank_worst().tolist() == [0, 3, 1, 5]


def test_all_items_of_one_class_have_no_wrong_neighbor():
    scores = score_queries(SplitEmbeddings(torch.arange(4.0)[:, None], torch.zeros(4).long()))
    assert (scores.wrong == -1).all()
    assert scores.map_at_r.tolist() == [1, 1, 1, 1]
    assert scores.rank_worst().tolist() == [0, 1, 2, 3]


def test_what_cannot_be_scored_is_one_line():
    points, labels = torch.randn(3, 2), torch.arange(3)
    with pytest.raises(UserError, match="no query has a relevant item"):
        score_queries(SplitEmbeddings(points, labels))
    points[1, 0] = torch.nan
    with pytest.raises(UserError, match="NaN or infinite"):
        score_queries(SplitEmbeddings(points, labels * 0))
