"""Neighbors equal the float64 ranking, for all kinds of data and all engines."""

import pytest
import torch

from dml.retrieval import inputs, nearest_neighbors, retrieval_metrics
from dml.retrieval.exact import running_top, search
from dml.retrieval.exact.plain_search import PlainSearch
from dml.retrieval.exact.scaled_gallery import ROUND, ScaledGallery
from tests.retrieval import reference

ENGINES = ["cpu", "plain", "faiss"]


@pytest.fixture(params=ENGINES)
def backend(request, monkeypatch):
    """The name of the backend; "plain" is the engine for GPUs, run on the CPU."""
    if request.param == "plain":
        monkeypatch.setattr(search, "CpuSearch", PlainSearch)
    if request.param == "faiss":
        pytest.importorskip("faiss")
    return "faiss" if request.param == "faiss" else "torch"


@pytest.mark.parametrize("case", reference.CASES)
def test_equals_the_float64_ranking(case, backend, generator):
    embeddings = reference.CASES[case](generator)
    distances, order = reference.ranking(embeddings)
    for k in (1, 7, 60):
        found = nearest_neighbors(embeddings, k=k, backend=backend)
        assert torch.equal(found.indices, order[:, :k])
        torch.testing.assert_close(
            found.distances.double(), distances[:, :k], rtol=1e-6, atol=0, check_dtype=False
        )
    query, gallery = embeddings[:70], embeddings[70:]
    _, order = reference.ranking(query, gallery)
    for k in (1, 5, len(gallery)):
        found = nearest_neighbors(query, gallery, k=k, backend=backend)
        assert torch.equal(found.indices, order[:, :k])


@pytest.mark.usefixtures("small_tiles", "two_threads")
@pytest.mark.parametrize("case", reference.CASES)
def test_many_tiles_give_the_float64_ranking(case, generator):
    everything = reference.CASES[case](generator)
    order = reference.ranking(everything)[1]
    for k in (1, 9, 60):
        assert torch.equal(nearest_neighbors(everything, k=k).indices, order[:, :k])
    query, gallery = everything[:70], everything[70:]
    found = nearest_neighbors(query, gallery, k=9)
    assert torch.equal(found.indices, reference.ranking(query, gallery)[1][:, :9])


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("memory_mb", [None, 0.1])
@pytest.mark.parametrize("split", [False, True])
def test_neighbors_below_a_threshold_that_was_too_high_are_found(
    split, memory_mb, generator, monkeypatch
):
    """Thresholds are sampled with a wide margin; here they have none, and many are too high."""
    monkeypatch.setattr(running_top, "DEVIATIONS", -1.0)
    query = torch.randn(400, 8, generator=generator)
    gallery = torch.randn(500, 8, generator=generator) if split else None
    found = nearest_neighbors(query, gallery, k=60, memory_mb=memory_mb)
    assert torch.equal(found.indices, reference.ranking(query, gallery)[1][:, :60])


def test_own_item_is_left_out_by_index_not_by_place():
    embeddings = torch.tensor([[0.0], [0.0], [0.0], [1.0]])
    found = nearest_neighbors(embeddings, k=3)
    assert found.indices.tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert found.distances[0].tolist() == [0.0, 0.0, 1.0]


def test_a_gallery_given_explicitly_leaves_nothing_out():
    embeddings = torch.tensor([[0.0], [2.0]])
    assert nearest_neighbors(embeddings, embeddings, k=1).indices.tolist() == [[0], [1]]


def test_near_ties_beyond_float32_are_resolved():
    # distances that differ by 1e-9 at 1: no float32 product can tell them apart
    angles = torch.linspace(0, 1e-4, 200, dtype=torch.float64)
    gallery = torch.stack([angles.cos(), angles.sin()], dim=1)[torch.randperm(200)]
    query = torch.tensor([[-1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    expected = reference.ranking(query, gallery)[1]
    for k in (1, 30, 150):
        assert torch.equal(nearest_neighbors(query, gallery, k=k).indices, expected[:, :k])


def test_the_smallest_differences_are_told_apart(generator):
    embeddings = 1e-145 * torch.randn(200, 8, generator=generator, dtype=torch.float64)
    embeddings[:, 0] = 1.0
    found = nearest_neighbors(embeddings, k=5)
    assert torch.equal(found.indices, reference.ranking(embeddings)[1][:, :5])
    scores = retrieval_metrics(embeddings, torch.arange(200) % 20, recall_at=(1, 50, 150))
    assert 0 < scores["recall_at_50"] < 1 == scores["recall_at_150"]


@pytest.mark.parametrize(
    ("query", "gallery", "k", "message"),
    [
        (torch.zeros(3, 2), torch.zeros(0, 2), 1, "gallery is empty"),
        (torch.zeros(3, 2), None, 3, "k must lie between 1 and the 2"),
        (torch.zeros(3, 2), None, 0, "k must be a positive integer"),
        (torch.zeros(3, 2), torch.zeros(4, 3), 1, "one dimension, got 2 and 3"),
        (torch.full((2, 2), torch.nan), None, 1, "query: 4 of 4 values are NaN"),
        (torch.zeros(3), None, 1, "query must be a floating-point matrix"),
    ],
)
def test_impossible_arguments(query, gallery, k, message):
    with pytest.raises(ValueError, match=message):
        nearest_neighbors(query, gallery, k=k)


def test_products_are_true_float32_whatever_training_uses(generator):
    embeddings = torch.nn.functional.normalize(torch.randn(400, 32, generator=generator))
    expected = reference.ranking(embeddings)[1][:, :20]
    backends = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    before = [backend.fp32_precision for backend in backends]
    try:
        backends[0].fp32_precision, backends[1].fp32_precision = "tf32", "bf16"
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(nearest_neighbors(embeddings, k=20).indices, expected)
        assert [backend.fp32_precision for backend in backends] == ["tf32", "bf16"]
    finally:
        backends[0].fp32_precision, backends[1].fp32_precision = before
    assert torch.get_float32_matmul_precision() == "highest"


class LeastExact(PlainSearch):
    """Scores with the largest errors that the bound allows: too low for item 0, else too high."""

    def best(self, query_nE, m):
        gallery = self.gallery
        error_n = 0.95 * gallery.error(query_nE[:, -1])
        scores_nm = query_nE.double() @ gallery.rows.double().T + error_n[:, None]
        scores_nm[:, gallery.row_of_item[0]] -= 2 * error_n
        scores, rows = scores_nm.topk(m, dim=1)
        return scores.float(), rows


def test_neighbors_are_exact_for_all_errors_that_the_bound_allows(monkeypatch):
    """Item 0 is the nearest, and no candidate: items that are farther by 1.7 errors seem nearer."""
    size, others = 64, 8
    query = torch.zeros(1, size, dtype=torch.float64)
    far = torch.eye(size, dtype=torch.float64)
    far = torch.cat([far, -far])
    gallery = far
    for _ in range(2):  # the first gallery tells the bound
        scaled = ScaledGallery(gallery, query, ROUND)
        error = scaled.error(scaled.queries(query)[:, -1]) / scaled.scale**2
        behind = torch.tensor([0.0, 0.2, *[1.7] * others], dtype=torch.float64)
        squared = 0.25 + 2 * error * behind
        gallery = torch.cat([far[: others + 2] * squared.sqrt()[:, None], far])
    monkeypatch.setattr(search, "CpuSearch", LeastExact)
    assert nearest_neighbors(query, gallery, k=1).indices.item() == 0


@pytest.mark.parametrize(
    ("memory_mb", "free_gb", "expected"),
    [(None, 100, 8 * 30_000_000), (None, 1, 2**27), (None, 0, 2**26), (3, 100, 3 * 2**20)],
)
def test_a_table_may_be_larger_where_memory_is_free(memory_mb, free_gb, expected, monkeypatch):
    monkeypatch.setattr(inputs, "available_memory", lambda: free_gb * 2**30)
    gallery = torch.empty(1, 1).expand(300_000, 100)
    assert inputs.table_memory(memory_mb, gallery) == expected
    small = torch.empty(10, 10)
    assert inputs.table_memory(memory_mb, small) == min(expected, 2**26)


@pytest.mark.usefixtures("small_tiles")
def test_neighbors_with_and_without_a_table(generator, monkeypatch):
    points = torch.randn(300, 8, generator=generator)
    offered = []
    offer = running_top.RunningTop.offer

    def watched(top, *more):
        offered.append(top)
        return offer(top, *more)

    monkeypatch.setattr(running_top.RunningTop, "offer", watched)
    results, numbers = [], []
    for memory in (2**26, 1):
        monkeypatch.setattr(search, "table_memory", lambda *_, memory=memory: memory)
        offered.clear()
        results.append(nearest_neighbors(points, k=5).indices.tolist())
        numbers.append(len(offered))
    assert results[0] == results[1]
    assert numbers[0] != numbers[1]
