import subprocess
import sys

import pytest
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

from dml.retrieval import (
    concatenate,
    mean_average_precision,
    nearest_neighbors,
    retrieval_metrics,
)
from tests.retrieval import reference
from tests.retrieval.reference import LABELS, assert_same, clustered


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(1)


@pytest.mark.parametrize("case", LABELS)
def test_equals_the_reference_among_themselves(case, generator):
    labels = LABELS[case](generator)
    embeddings = clustered(labels, 16, 1.0, generator)
    found = retrieval_metrics(embeddings, labels, reciprocal_rank=True)
    assert 0.05 < found["map_at_r"] < 0.95
    assert_same(found, reference.metrics(embeddings, labels))


@pytest.mark.parametrize("case", LABELS)
@pytest.mark.parametrize("split", [False, True])
def test_equals_pml(case, split, generator):
    pytest.importorskip("faiss")  # its search
    labels = LABELS[case](generator)
    embeddings = clustered(labels, 16, 1.0, generator)
    query = torch.randperm(len(labels), generator=generator)[:80] if split else slice(None)
    names = {
        "precision_at_1": "precision_at_1",
        "r_precision": "r_precision",
        "map_at_r": "mean_average_precision_at_r",
    }
    pml = AccuracyCalculator(
        include=tuple(names.values()), k="max_bin_count", device=torch.device("cpu")
    )
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[query] = False
    gallery = (embeddings[rest], labels[rest]) if split else ()
    expected = pml.get_accuracy(embeddings[query], labels[query], *gallery)
    found = retrieval_metrics(embeddings[query], labels[query], *gallery)
    for ours, theirs in names.items():
        assert found[ours] == pytest.approx(expected[theirs], abs=1e-6)


def test_by_hand():
    # seen from 0: 1 (hit), 2 (miss), 4 (hit), 7 (hit); R = 3
    embeddings = torch.tensor([[0.0], [1.0], [2.0], [4.0], [7.0]])
    labels = torch.tensor([5, 5, 8, 5, 5])
    found = retrieval_metrics(embeddings[:1], labels[:1], embeddings[1:], labels[1:])
    assert found["precision_at_1"] == 1
    assert found["r_precision"] == pytest.approx(2 / 3)
    assert found["map_at_r"] == pytest.approx((1 + 2 / 3) / 3)
    among_themselves = retrieval_metrics(embeddings, labels, recall_at=(1, 2, 3))
    assert among_themselves["queries"] == 4
    assert among_themselves["queries_without_match"] == 1
    # first hits: 0 → 1 at once; 1 → 0 before 2 (a tie); 4 → 2 misses, then 1 or 7; 7 → 4 at once
    assert among_themselves["recall_at_1"] == 0.75
    assert among_themselves["recall_at_2"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(3, 2), torch.zeros(4).long()), r"labels must have shape \(3,\)"),
        ((torch.zeros(3, 2), torch.tensor([0, 0.5, 1])), "labels: 0.5 is not a whole number"),
        ((torch.zeros(3, 2), torch.arange(3)), "no query has a relevant item"),
        ((torch.zeros(3, 2), torch.arange(3), torch.zeros(3, 2)), "must be given together"),
    ],
)
def test_impossible_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        retrieval_metrics(*arguments)


@pytest.mark.parametrize("average", ["image", "class"])
@pytest.mark.parametrize("known", ["all", "some", "none"])
@pytest.mark.parametrize("case", LABELS)
def test_queries_in_a_larger_gallery(case, known, average, generator):
    labels = LABELS[case](generator)
    embeddings = clustered(labels, 16, 1.0, generator)
    order = torch.randperm(len(labels), generator=generator)
    place = order.argsort()  # of each image in the gallery
    query = torch.randperm(len(labels), generator=generator)[:80]
    self_index = place[query]
    if known == "some":
        self_index = torch.where(torch.arange(80) % 3 == 0, -1, self_index)
    if known == "none":
        self_index = torch.full_like(self_index, -1)
    arguments = (embeddings[query], labels[query], embeddings[order], labels[order])
    options = {"recall_at": (1, 10, 1000), "average": average}
    selves = {"self_index": self_index.numpy(), "reciprocal_rank": True}
    found = retrieval_metrics(*arguments, **selves, **options)
    expected = reference.metrics(*arguments, self_index=self_index.tolist(), **options)
    assert_same(found, expected)


@pytest.mark.parametrize("backend", ["torch", "faiss"])
def test_a_gallery_that_is_the_queries_equals_none(backend, generator):
    pytest.importorskip(backend)
    labels = LABELS["very different sizes"](generator)
    embeddings = clustered(labels, 16, 1.0, generator)
    places = torch.arange(len(labels))
    found = retrieval_metrics(
        embeddings, labels, embeddings, labels, self_index=places, backend=backend
    )
    assert_same(found, retrieval_metrics(embeddings, labels, backend=backend))


def test_concatenate_gives_every_model_one_vote(generator):
    first, second = torch.randn(6, 3, generator=generator), 50 * torch.randn(6, 4).half()
    joined = concatenate([first, second])
    assert joined.shape == (6, 7)
    for part, model in ((joined[:, :3], first), (joined[:, 3:], second.float())):
        expected = model / model.norm(dim=1, keepdim=True) / 2**0.5
        torch.testing.assert_close(part, expected)


def test_the_first_row_that_is_not_finite_is_named():
    embeddings = torch.zeros(9, 2)
    embeddings[6, 1], embeddings[8] = torch.nan, torch.inf
    with pytest.raises(ValueError, match=r"3 of 18 values are NaN or infinite, first in row 6 \("):
        retrieval_metrics(embeddings, torch.arange(9) % 3)


READ_ONLY = """
import numpy as np
from dml.retrieval import nearest_neighbors, retrieval_metrics

arrays = np.eye(8, 4, dtype=np.float32), np.arange(8) // 2, np.arange(8)
for array in arrays:
    array.flags.writeable = False
embeddings, labels, rows = arrays
retrieval_metrics(embeddings, labels, embeddings, labels, self_index=rows)
nearest_neighbors(embeddings, k=2)
"""


def test_arrays_that_cannot_be_written_to_give_no_warning():
    # In a process of its own, since PyTorch warns only once.
    subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", READ_ONLY], check=True)


@pytest.mark.parametrize("classes", [2, 100])
@pytest.mark.parametrize("exponent", [-1070, -600, -530, 505, 900, 1015])
def test_distances_that_float64_cannot_square_are_refused(exponent, classes, generator):
    embeddings = torch.randn(400, 8, generator=generator).double() * 2.0**exponent
    labels = torch.arange(400) % classes
    for score in (retrieval_metrics, mean_average_precision):
        with pytest.raises(ValueError, match=r"float64 cannot hold .* multiply the embeddings"):
            score(embeddings, labels)
    with pytest.raises(ValueError, match="float64 cannot hold"):
        nearest_neighbors(embeddings, k=3)


@pytest.mark.parametrize("exponent", [-470, -140, 140, 490])
def test_a_power_of_two_changes_no_score(exponent, generator):
    embeddings = torch.randn(400, 8, generator=generator).double()
    labels = torch.arange(400) % 100
    scaled = embeddings * 2.0**exponent
    assert retrieval_metrics(scaled, labels) == retrieval_metrics(embeddings, labels)
    mean = mean_average_precision(embeddings, labels)
    assert mean_average_precision(scaled, labels) == mean
