import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.retrieval import (
    entries,
    nearest_neighbors,
    product,
    retrieval_metrics,
    running_top,
    scans,
    search,
)
from dml.retrieval import gallery as galleries
from dml.retrieval.exact import score_error, surplus_duplicates
from dml.retrieval.inputs import check_embeddings
from dml.retrieval.parallel import Workers
from tests.retrieval import retrieval_reference as reference

CASES = {
    "random": lambda g: torch.randn(300, 24, generator=g),
    "unit": lambda g: torch.nn.functional.normalize(torch.randn(300, 64, generator=g)),
    "float64": lambda g: torch.randn(200, 16, generator=g, dtype=torch.float64),
    "half": lambda g: torch.randn(200, 16, generator=g).half(),
    "bfloat16": lambda g: torch.randn(200, 8, generator=g).bfloat16(),
    "far from the origin": lambda g: 1000 + 0.01 * torch.randn(200, 16, generator=g),
    "nearly collapsed": lambda g: torch.ones(200, 32) + 1e-6 * torch.randn(200, 32, generator=g),
    "one point": lambda g: torch.ones(150, 8),
    "all zero": lambda g: torch.zeros(150, 8),
    "grid": lambda g: torch.randint(0, 3, (400, 4), generator=g).float(),
    "signs": lambda g: torch.randint(0, 2, (300, 12), generator=g).float() * 2 - 1,
    "duplicates": lambda g: torch.randn(20, 16, generator=g)[
        torch.randint(0, 20, (300,), generator=g)
    ],
    "tiny values": lambda g: 1e-30 * torch.randn(200, 16, generator=g),
    "large values": lambda g: 1e25 * torch.randn(200, 16, generator=g),
    "one outlier": lambda g: torch.cat([torch.randn(200, 8, generator=g), torch.full((1, 8), 1e6)]),
    "hardly in the range": lambda g: 1e149 * torch.randn(200, 6, generator=g, dtype=torch.float64),
    "one dimension": lambda g: torch.randn(300, 1, generator=g),
}


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("k", [1, 7, 60])
def test_equals_the_float64_ranking(case, k, generator):
    embeddings = CASES[case](generator)
    distances, order = reference.ranking(embeddings)
    found = nearest_neighbors(embeddings, k=k)
    assert torch.equal(found.indices, order[:, :k])
    torch.testing.assert_close(
        found.distances.double(), distances[:, :k], rtol=1e-6, atol=0, check_dtype=False
    )


@pytest.mark.parametrize("case", CASES)
def test_equals_the_float64_ranking_of_another_gallery(case, generator):
    everything = CASES[case](generator)
    query, gallery = everything[:70], everything[70:]
    _, order = reference.ranking(query, gallery)
    for k in (1, 5, len(gallery)):
        assert torch.equal(nearest_neighbors(query, gallery, k=k).indices, order[:, :k])


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(search, "TILE", 32)
    monkeypatch.setattr(search, "ROWS", 48)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@pytest.mark.usefixtures("small_tiles", "two_threads")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["torch", "faiss"])
def test_many_tiles_give_the_float64_ranking(case, backend, generator):
    everything = CASES[case](generator)
    order = reference.ranking(everything)[1]
    for k in (1, 9, 60):
        found = nearest_neighbors(everything, k=k, backend=backend)
        assert torch.equal(found.indices, order[:, :k])
    query, gallery = everything[:70], everything[70:]
    found = nearest_neighbors(query, gallery, k=9, backend=backend)
    assert torch.equal(found.indices, reference.ranking(query, gallery)[1][:, :9])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("squares", [False, True])
def test_scores_are_as_accurate_as_claimed(case, squares, generator):
    embeddings = CASES[case](generator)
    embeddings = check_embeddings(embeddings, "embeddings")
    space = galleries.Gallery(embeddings, embeddings, 64)
    query, half_square = space.queries(embeddings)
    found = torch.cat(
        [
            space.scores(query, half_square if squares else None, slice(first, first + 64), tile)
            for first in range(0, len(space.rows), 64)
            for tile in [torch.empty(len(query), 64)]
        ],
        dim=1,
    )[:, space.place[: len(embeddings)]]
    exact = (embeddings.double() - space.center) * space.scale
    expected = -0.5 * torch.cdist(exact, exact, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    if not squares:
        expected += 0.5 * exact.square().sum(dim=1, keepdim=True)
    bound = score_error(exact.norm(dim=1), space.largest, embeddings.shape[1], 2.0**-24)
    assert ((found - expected).abs() <= bound[:, None]).all()


@pytest.mark.usefixtures("small_tiles")
def test_half_of_the_product_is_used_for_many_queries_of_their_own(generator, monkeypatch):
    sizes = []
    product = torch.mm

    def counting(a, b, **kwargs):
        sizes.append(a.shape[0] * b.shape[1])
        return product(a, b, **kwargs)

    monkeypatch.setattr(galleries, "fastest_product", lambda *_: lambda a, b, out: counting(a, b.T))
    embeddings = torch.randn(640, 8, generator=generator)
    found = nearest_neighbors(embeddings, k=2)
    assert torch.equal(found.indices, reference.ranking(embeddings)[1][:, :2])
    assert sum(sizes) < 0.65 * 640**2
    sizes.clear()
    nearest_neighbors(embeddings, embeddings, k=2)
    assert sum(sizes) >= 640**2


def test_thresholds_that_were_too_high_are_noticed(generator, monkeypatch):
    # the best of the whole gallery all lie in the first tile: its sample is as unfair as can be
    monkeypatch.setattr(running_top.RunningTop, "_rank", lambda self, seen: 1)
    monkeypatch.setattr(search, "TILE", 64)
    seen = []
    scan = scans.scan_rows

    def watched(*arguments, cautious=False):
        seen.append(cautious)
        if cautious:
            monkeypatch.undo()
        return scan(*arguments, cautious=cautious)

    monkeypatch.setattr(scans, "scan_rows", watched)
    embeddings = torch.randn(256, 6, generator=generator)
    found = nearest_neighbors(embeddings, k=10)
    assert True in seen
    assert torch.equal(found.indices, reference.ranking(embeddings)[1][:, :10])


@pytest.mark.parametrize("length", [0, 1, 3, 700])
@pytest.mark.parametrize("count", [1, 3])
def test_workers_keep_the_order_and_take_no_gradients(length, count):
    with Workers(count) as workers:
        found = workers.for_each(lambda i: (i, torch.is_grad_enabled()), range(length))
    assert found == [(i, False) for i in range(length)]
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("items", [1, 5])
def test_workers_raise_what_one_of_them_raises_and_give_threads_back(items):
    before = torch.get_num_threads()

    def fail(number):
        raise ValueError(f"number {number}")

    with pytest.raises(ValueError, match="number 0"), Workers(2) as workers:
        workers.for_each(fail, range(items))
    assert torch.get_num_threads() == before


def test_workers_share_the_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        for count, teams, share in ((2, True, 2), (1, True, 4), (3, True, 1), (2, False, 1)):
            with Workers(count, teams=teams) as workers:
                found = workers.for_each(lambda _: torch.get_num_threads(), [0, 1])
                assert found == [share, share]
                assert torch.get_num_threads() == share
            assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_few_queries_are_work_for_all_workers(generator, monkeypatch):
    monkeypatch.setattr(search, "worker_count", lambda *_: 3)
    seen = []
    nearest = search.NeighborSearch._nearest

    def watched(self, space, rows, *rest):
        seen.append(len(rows))
        return nearest(self, space, rows, *rest)

    monkeypatch.setattr(search.NeighborSearch, "_nearest", watched)
    query, gallery = torch.randn(2, 100, 8, generator=generator)
    nearest_neighbors(query, gallery, k=3)
    assert sorted(seen) == [32, 34, 34]


def test_differences_beyond_float64_are_refused(generator):
    embeddings = 1e-155 * torch.randn(200, 8, generator=generator, dtype=torch.float64)
    embeddings[:, 0] = 1.0
    with pytest.raises(ValueError, match="they differ by 4e-155 at most"):
        nearest_neighbors(embeddings, k=5)


def test_the_smallest_differences_are_told_apart(generator):
    embeddings = 1e-145 * torch.randn(200, 8, generator=generator, dtype=torch.float64)
    embeddings[:, 0] = 1.0
    found = nearest_neighbors(embeddings, k=5)
    assert torch.equal(found.indices, reference.ranking(embeddings)[1][:, :5])
    scores = retrieval_metrics(embeddings, torch.arange(200) % 20, recall_at=(1, 50, 150))
    assert 0 < scores["recall_at_50"] < 1 == scores["recall_at_150"]


def test_searches_at_once_leave_the_precision_alone(generator):
    embeddings = torch.randn(600, 16, generator=generator)
    begun, done = threading.Event(), threading.Event()

    def long_search():
        with product.full_float32(torch.device("cpu")):
            begun.set()
            done.wait(60)
            assert torch.get_float32_matmul_precision() == "highest"

    torch.set_float32_matmul_precision("medium")
    try:
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(long_search)
            begun.wait(60)
            nearest_neighbors(embeddings, k=3)
            assert torch.get_float32_matmul_precision() == "highest"  # the other still needs it
            done.set()
            other.result()
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        done.set()
        torch.set_float32_matmul_precision("highest")


def test_pytorchs_newer_precision_settings(generator):
    embeddings = torch.randn(400, 32, generator=generator)
    expected = reference.ranking(embeddings)[1][:, :20]
    backends = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    before = [backend.fp32_precision for backend in backends]
    try:
        backends[0].fp32_precision, backends[1].fp32_precision = "tf32", "bf16"
        assert torch.equal(nearest_neighbors(embeddings, k=20).indices, expected)
        assert [backend.fp32_precision for backend in backends] == ["tf32", "bf16"]
    finally:
        for backend, word in zip(backends, before, strict=True):
            backend.fp32_precision = word
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.usefixtures("small_tiles")
def test_few_queries_at_once_where_the_gallery_is_huge(generator, monkeypatch):
    """Beside millions of gallery rows an entry's number leaves fewer bits to its query."""
    monkeypatch.setattr(entries, "BITS", entries.SCORE_BITS + 12)
    seen = []
    monkeypatch.setattr(
        scans,
        "RunningTop",
        lambda queries, *a, **k: seen.append(queries) or running_top.RunningTop(queries, *a, **k),
    )
    embeddings = torch.randn(640, 8, generator=generator)  # 10 of the 12 bits
    found = nearest_neighbors(embeddings, k=7)
    assert torch.equal(found.indices, reference.ranking(embeddings)[1][:, :7])
    assert max(seen) <= 4


def test_products_are_true_float32_whatever_training_uses(generator):
    embeddings = torch.nn.functional.normalize(torch.randn(400, 32, generator=generator))
    expected = reference.ranking(embeddings)[1][:, :20]
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(nearest_neighbors(embeddings, k=20).indices, expected)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_both_products_agree(generator):
    a, b = torch.randn(16, 10, generator=generator), torch.randn(32, 10, generator=generator)
    out = torch.empty(16, 32)
    torch.testing.assert_close(product._default(a, b, out), a @ b.T)
    if torch.backends.mkldnn.is_available():
        torch.testing.assert_close(product._one_dnn(a, b, out), a @ b.T)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("case", CASES)
def test_cuda_gives_the_float64_ranking(case, generator):
    embeddings = CASES[case](generator)
    found = nearest_neighbors(embeddings.cuda(), k=9)
    assert torch.equal(found.indices.cpu(), reference.ranking(embeddings)[1][:, :9])


def test_small_memory_gives_the_same_answer(generator):
    embeddings = torch.randint(0, 4, (500, 3), generator=generator).float()
    expected = reference.ranking(embeddings)[1][:, :20]
    for memory_mb in (0.001, 0.1, 1000):
        found = nearest_neighbors(embeddings, k=20, memory_mb=memory_mb)
        assert torch.equal(found.indices, expected)


def test_own_item_is_left_out_by_index_not_by_place():
    embeddings = torch.tensor([[0.0], [0.0], [0.0], [1.0]])
    found = nearest_neighbors(embeddings, k=3)
    assert found.indices.tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    assert found.distances[0].tolist() == [0.0, 0.0, 1.0]


def test_a_gallery_given_explicitly_leaves_nothing_out():
    embeddings = torch.tensor([[0.0], [2.0]])
    assert nearest_neighbors(embeddings, embeddings, k=1).indices.tolist() == [[0], [1]]


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 40), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
def test_ties_go_to_the_lower_index(count, dim, values, seed):
    g = torch.Generator().manual_seed(seed)
    embeddings = torch.randint(0, values, (count, dim), generator=g).float()
    k = int(torch.randint(1, count, (1,), generator=g))
    assert torch.equal(
        nearest_neighbors(embeddings, k=k).indices, reference.ranking(embeddings)[1][:, :k]
    )


def test_near_ties_beyond_float32_are_resolved():
    # distances that differ by 1e-9 at 1: no float32 product can tell them apart
    angles = torch.linspace(0, 1e-4, 200, dtype=torch.float64)
    gallery = torch.stack([angles.cos(), angles.sin()], dim=1)[torch.randperm(200)]
    query = torch.tensor([[-1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    expected = reference.ranking(query, gallery)[1]
    for k in (1, 30, 150):
        assert torch.equal(nearest_neighbors(query, gallery, k=k).indices, expected[:, :k])


def test_surplus_duplicates_keep_the_lowest_of_each_kind():
    gallery = torch.tensor([[1.0], [2.0], [1.0], [1.0], [2.0], [1.0], [3.0]])
    surplus = surplus_duplicates(gallery, 2)
    assert surplus.tolist() == [False, False, False, True, False, True, False]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_counted(value):
    query = torch.zeros(4, 5)
    query[1, 2] = query[3, 0] = value
    with pytest.raises(ValueError, match="query: 2 of 20 values are NaN or infinite"):
        nearest_neighbors(query, k=1)
    with pytest.raises(ValueError, match="gallery: 2 of 20 values"):
        nearest_neighbors(torch.zeros(1, 5), query, k=1)


def test_large_finite_values_are_no_error():
    assert nearest_neighbors(torch.tensor([[3e38], [3e38], [-3e38]]), k=1).indices[0] == 1


@pytest.mark.parametrize(
    ("query", "gallery", "k", "message"),
    [
        (torch.zeros(3, 2), torch.zeros(0, 2), 1, "gallery is empty"),
        (torch.zeros(0, 2), None, 1, "query is empty"),
        (torch.zeros(3, 2), None, 3, "k must lie between 1 and the 2"),
        (torch.zeros(3, 2), torch.zeros(4, 2), 5, "k must lie between 1 and the 4"),
        (torch.zeros(3, 2), None, 0, "k must be an integer from 1 on"),
        (torch.zeros(3, 2), None, 2.0, "k must be an integer from 1 on"),
        (torch.full((3, 2), 1e154, dtype=torch.float64), None, 1, "values up to 1e.154"),
        (torch.full((3, 2), 1e-165, dtype=torch.float64), None, 1, "leave the range of float64"),
        (torch.zeros(3, 2), torch.zeros(4, 3), 1, "one dimension, got 2 and 3"),
        (torch.zeros(3), None, 1, "query must be a floating-point matrix"),
        (torch.zeros(3, 2, dtype=torch.long), None, 1, "query must be a floating-point matrix"),
    ],
)
def test_impossible_arguments(query, gallery, k, message):
    with pytest.raises(ValueError, match=message):
        nearest_neighbors(query, gallery, k=k)


def test_unknown_backend():
    with pytest.raises(ValueError, match="backend must be auto, torch or faiss, got 'annoy'"):
        nearest_neighbors(torch.zeros(3, 2), k=1, backend="annoy")


def test_missing_faiss_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ValueError, match="'faiss' needs the package"):
        nearest_neighbors(torch.zeros(3, 2), k=1, backend="faiss")
    assert nearest_neighbors(torch.zeros(3, 2), k=1).indices[0] == 1


@pytest.mark.parametrize("memory_mb", [0, -1, float("nan"), float("inf")])
def test_a_bound_on_memory_that_is_none(memory_mb):
    with pytest.raises(ValueError, match="memory_mb must be above 0 and finite"):
        nearest_neighbors(torch.eye(3), k=1, memory_mb=memory_mb)
