from itertools import combinations

import pytest
import torch
from torch.nn.functional import normalize

from dml.retrieval import geometry
from dml.retrieval.geometry import spread


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(2)


@pytest.fixture
def items(generator):
    labels = torch.randint(0, 6, (60,), generator=generator)
    return normalize(torch.randn(60, 5, generator=generator)), labels


@pytest.fixture(params=[1024, 16])
def tile(request, monkeypatch):
    monkeypatch.setattr(spread, "TILE", request.param)


def mean(values):
    values = list(values)
    assert values
    return sum(values) / len(values)


def pairs(embeddings):
    x = embeddings.double()
    return [(i, j, float((x[i] - x[j]).norm())) for i, j in combinations(range(len(x)), 2)]


def test_alignment_is_the_mean_over_positive_pairs(items):
    x, y = items
    expected = mean(d**2 for i, j, d in pairs(x) if y[i] == y[j])
    assert geometry.alignment(x, y) == pytest.approx(expected, rel=1e-12)


@pytest.mark.usefixtures("tile")
def test_uniformity_is_the_log_of_the_mean_potential(items):
    x, _ = items
    expected = torch.tensor(mean(torch.tensor(-2 * d**2).exp().item() for _, _, d in pairs(x)))
    assert geometry.uniformity(x) == pytest.approx(expected.log().item(), rel=1e-6)


def test_uniformity_of_two_far_points_does_not_underflow():
    assert geometry.uniformity(torch.tensor([[0.0], [100.0]])) == pytest.approx(-20000)
    assert geometry.uniformity(torch.ones(17, 3)) == pytest.approx(0, abs=1e-12)


@pytest.mark.usefixtures("tile")
def test_inter_class_distance_is_the_mean_over_negative_pairs(items):
    x, y = items
    expected = mean(d for i, j, d in pairs(x) if y[i] != y[j])
    assert geometry.inter_class_distance(x, y) == pytest.approx(expected, rel=1e-9)


def test_utilization(items, generator):
    x, _ = items
    queries = normalize(torch.randn(20, 5, generator=generator))
    more = normalize(torch.randn(30, 5, generator=generator))
    expected = mean(min(float((q - t).double().square().sum()) for t in x) for q in queries)
    alone = geometry.utilization(queries, x)
    assert alone == pytest.approx(expected, rel=1e-5)
    assert geometry.utilization(x, x) == 0
    together = geometry.utilization(queries, torch.cat([x, more]))
    assert together < alone
    assert geometry.utilization(queries, iter([x, more])) == pytest.approx(together, rel=1e-6)
    with pytest.raises(ValueError, match="training is empty"):
        geometry.utilization(queries, [])
