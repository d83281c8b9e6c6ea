"""Measures of geometry, compared with sums over pairs."""

import math
from itertools import combinations, permutations
from statistics import fmean

import pytest
import torch
from torch.nn.functional import normalize

from dml import retrieval
from dml.retrieval import pairs as pairs_module
from tests.retrieval.reference import CASES

HARD = ["an outlier far from tiny distances", "tiny clusters far apart", "duplicates", "grid"]
RATES = (0, 0.01, 0.3, 0.6)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(2)


@pytest.fixture
def items(generator):
    labels = torch.randint(0, 6, (60,), generator=generator)
    return normalize(torch.randn(60, 5, generator=generator)), labels


@pytest.fixture(params=[1024, 16])
def tile(request, monkeypatch):
    monkeypatch.setattr(pairs_module, "TILE", request.param)


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
    assert retrieval.alignment(x, y) == pytest.approx(expected, rel=1e-12)


@pytest.mark.usefixtures("tile")
def test_uniformity_is_the_log_of_the_mean_potential(items):
    x, _ = items
    expected = torch.tensor(mean(torch.tensor(-2 * d**2).exp().item() for _, _, d in pairs(x)))
    assert retrieval.uniformity(x) == pytest.approx(expected.log().item(), rel=1e-6)


@pytest.mark.usefixtures("tile")
def test_inter_class_distance_is_the_mean_over_negative_pairs(items):
    x, y = items
    expected = mean(d for i, j, d in pairs(x) if y[i] != y[j])
    assert retrieval.inter_class_distance(x, y) == pytest.approx(expected, rel=1e-9)


@pytest.mark.usefixtures("tile")
def test_match_error_rates_at_the_largest_threshold_allowed(items):
    x, y = items
    rates = (0, 0.001, 0.01, 0.3, 0.999)
    same = [d for i, j, d in pairs(x) if y[i] == y[j]]
    other = [d for i, j, d in pairs(x) if y[i] != y[j]]
    for rate, error in zip(rates, retrieval.match_error_rates(x, y, rates), strict=True):
        thresholds = [t for t in other if mean(d < t for d in other) <= rate]
        assert error == pytest.approx(mean(d >= max(thresholds) for d in same))


def test_match_error_rates_of_distances_that_are_all_alike(generator):
    """Embeddings of many dimensions: the distances of all pairs differ by a few percent."""
    y = torch.arange(60) % 6
    x = normalize(torch.randn(60, 4000, generator=generator))
    listed = [(y[i] == y[j], float((x[i] - x[j]).double().norm())) for i, j, _ in pairs(x)]
    same, other = ([d for alike, d in listed if alike == wanted] for wanted in (True, False))
    rates = (0, 0.01, 0.3, 0.6)
    for rate, error in zip(rates, retrieval.match_error_rates(x, y, rates), strict=True):
        thresholds = [t for t in other if mean(d < t for d in other) <= rate]
        assert error == pytest.approx(mean(d >= max(thresholds) for d in same), abs=1e-9)


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("case", HARD)
def test_distances_that_products_would_lose(case):
    generator = torch.Generator().manual_seed(0)
    x = CASES[case](generator)[:70]
    y = torch.randint(0, 9, (len(x),), generator=generator)
    listed = pairs(x)
    other = [d for i, j, d in listed if y[i] != y[j]]
    assert retrieval.inter_class_distance(x, y) == pytest.approx(mean(other), rel=1e-7)
    values = torch.tensor([-2 * d * d for _, _, d in listed]).double().logsumexp(0)
    assert retrieval.uniformity(x) == pytest.approx(float(values) - math.log(len(listed)), rel=1e-6)
    squares = (x[:, None].double() - x.double()).square().sum(dim=2).float().tolist()
    same = [squares[i][j] for i, j, _ in listed if y[i] == y[j]]
    other = [squares[i][j] for i, j, _ in listed if y[i] != y[j]]
    for rate, error in zip(RATES, retrieval.match_error_rates(x, y, RATES), strict=True):
        thresholds = [t for t in other if mean(d < t for d in other) <= rate]
        assert error == pytest.approx(mean(d >= max(thresholds) for d in same), abs=1e-9)


def test_pairs_of_equal_items_are_not_compared_again(monkeypatch):
    monkeypatch.setattr(pairs_module, "squared_distances", lambda x, _, rows, cols: rows.double())
    assert retrieval.inter_class_distance(torch.full((40, 3), 0.1), torch.arange(40)) == 0


def test_clusters_of_double_precision():
    x = 1e5 + torch.arange(3).double().repeat(10)[:, None] * 1e-4 * torch.ones(30, 4).double()
    assert retrieval.cluster_agreement(x, torch.arange(30) % 3, ["nmi"])["nmi"] == pytest.approx(1)


def test_a_false_match_rate_of_equal_embeddings():
    assert retrieval.match_error_rates(torch.ones(4, 2), torch.tensor([0, 0, 1, 1]), [0.5]) == [1]
    with pytest.raises(ValueError, match="pairs of the same and of different classes"):
        retrieval.match_error_rates(torch.eye(3), torch.arange(3), [0.01])


def test_utilization(items, generator):
    x, _ = items
    queries = normalize(torch.randn(20, 5, generator=generator))
    more = normalize(torch.randn(30, 5, generator=generator))
    expected = mean(min(float((q - t).double().square().sum()) for t in x) for q in queries)
    alone = retrieval.utilization(queries, x)
    assert alone == pytest.approx(expected, rel=1e-5)
    assert retrieval.utilization(x, x) == 0
    together = retrieval.utilization(queries, torch.cat([x, more]))
    assert together < alone
    assert retrieval.utilization(queries, iter([x, more])) == pytest.approx(together, rel=1e-6)
    with pytest.raises(ValueError, match="training is empty"):
        retrieval.utilization(queries, [])


def best_assignment(proxies, members):
    few, many = sorted([proxies, members], key=len)
    return min(
        fmean(float((few[i] - many[j]).norm()) for i, j in enumerate(chosen))
        for chosen in permutations(range(len(many)), len(few))
    )


@pytest.mark.parametrize("sizes", [(3, 5), (3, 3), (4, 2)])
def test_proxy_alignment_is_the_best_assignment(sizes, generator):
    k, count = sizes
    proxies = torch.randn(2 * k, 3, generator=generator, dtype=torch.float64)
    embeddings = torch.randn(2 * count + 1, 3, generator=generator, dtype=torch.float64)
    proxy_labels = torch.tensor([7] * k + [9] * k)
    labels = torch.tensor([9] * count + [7] * count + [1])
    expected = fmean(
        best_assignment(proxies[proxy_labels == c], embeddings[labels == c]) for c in (7, 9)
    )
    found = retrieval.proxy_alignment(proxies, proxy_labels, embeddings, labels)
    assert found == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueError, match="no class has both"):
        retrieval.proxy_alignment(proxies, proxy_labels, embeddings, labels + 100)


def radius(pool, centers):
    return max(min(float((p - c).norm()) for c in centers) for p in pool)


@pytest.mark.parametrize("with_covered", [False, True])
def test_greedy_k_center(with_covered, generator):
    pool = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    covered = torch.randn(2, 2, generator=generator, dtype=torch.float64) if with_covered else None
    picks, radii = retrieval.greedy_k_center(pool, 12, covered)
    assert sorted(picks.tolist()) == list(range(12))
    assert radii[-1] == 0
    centers = [] if covered is None else list(covered)
    for k, (pick, found) in enumerate(zip(picks.tolist(), radii.tolist(), strict=True), start=1):
        if centers:  # the farthest point is picked
            gaps = [min(float((p - c).norm()) for c in centers) for p in pool]
            assert gaps[pick] == pytest.approx(max(gaps))
        centers.append(pool[pick])
        assert found == pytest.approx(radius(pool, centers))
        if k <= 3 and not with_covered:
            best = min(radius(pool, pool[list(c)]) for c in combinations(range(12), k))
            assert best - 1e-12 <= found <= 2 * best + 1e-12
    assert (radii[1:] <= radii[:-1]).all()


def test_greedy_k_center_picks_distinct_duplicates():
    picks, radii = retrieval.greedy_k_center(torch.ones(4, 2), 4)
    assert sorted(picks.tolist()) == [0, 1, 2, 3]
    assert radii.tolist() == [0, 0, 0, 0]
    picks, _ = retrieval.greedy_k_center(torch.ones(4, 2), 3, torch.ones(1, 2))
    assert len(set(picks.tolist())) == 3
    with pytest.raises(ValueError, match="k must lie between 1 and the 4"):
        retrieval.greedy_k_center(torch.ones(4, 2), 5)


def test_covering_radius_averages_over_picks_and_classes():
    # class 0: 0 and 3 and 10: starts at 3 (nearest to the mean 4.33): radii 7, 3, 0; class 1: 0
    embeddings = torch.tensor([[0.0], [5.0], [3.0], [10.0]])
    labels = torch.tensor([0, 1, 0, 0])
    assert retrieval.covering_radius(embeddings, labels) == pytest.approx((10 / 3 + 0) / 2)


def test_positivity_is_the_share_of_derivatives_that_are_not_positive():
    derivatives = torch.tensor([-1.0, 1.0, 0.0, 2.0, -3.0])
    lambdas = torch.tensor([0.1, 0.2, 0.3, 0.8, 1.0])
    shares = retrieval.positivity(derivatives, lambdas, bins=3)
    assert shares[0] == 2 / 3
    assert shares[1].isnan()
    assert shares[2] == 1 / 2


def test_predicted_positivity_equals_the_sign_of_the_single_mix_derivative(generator):
    # ℓ̃ = log(1 + λ e^{−β(s−m)})/β + log(1 + (1−λ) e^{γ(s−m)})/γ
    beta, gamma, m = 18.0, 75.0, 0.77
    s = torch.rand(4000, generator=generator, dtype=torch.float64, requires_grad=True)
    lambdas = torch.rand(4000, generator=generator, dtype=torch.float64)
    positive = (lambdas * (-beta * (s - m)).exp()).log1p() / beta
    negative = ((1 - lambdas) * (gamma * (s - m)).exp()).log1p() / gamma
    (positive + negative).sum().backward()
    measured = retrieval.positivity(s.grad, lambdas, bins=10)
    predicted = retrieval.predicted_positivity(
        s.detach(), lambdas, beta=beta, gamma=gamma, margin=m, bins=10
    )
    assert torch.equal(measured, predicted)
    assert predicted[0] < predicted[-1]


def test_agreement_does_not_depend_on_the_numbers_of_the_classes(items):
    x, y = items
    names = ["nmi", "ami"]
    assert retrieval.cluster_agreement(x, 7 * y + 100, names) == retrieval.cluster_agreement(
        x, y, names
    )


def test_clusters_that_have_nothing_to_do_with_the_classes_agree_by_chance_alone(generator):
    x, y = torch.randn(60, 3, generator=generator), torch.randint(0, 9, (60,), generator=generator)
    agreement = retrieval.cluster_agreement(x, y, ["nmi", "ami"])
    assert agreement["nmi"] > 0.25
    assert abs(agreement["ami"]) < 0.1


def blobs(centers: torch.Tensor, count: int = 20) -> torch.Tensor:
    noise = torch.randn(len(centers) * count, 2, generator=torch.Generator().manual_seed(0))
    return centers.repeat_interleave(count, dim=0) + 0.01 * noise


def test_the_definition_of_nmi():
    # two clusters of 20; the classes are 30 and 10 of them: 20 | 10 + 10
    points = blobs(torch.tensor([[0.0, 0.0], [9.0, 0.0]]))
    labels = torch.tensor([0] * 30 + [1] * 10)
    shares = {(0, 0): 0.5, (0, 1): 0.25, (1, 1): 0.25}  # class, cluster
    of_class, of_cluster = (0.75, 0.25), (0.5, 0.5)
    shared = sum(p * math.log(p / (of_class[a] * of_cluster[b])) for (a, b), p in shares.items())
    entropy = -sum(p * math.log(p) for p in (*of_class, *of_cluster))
    assert retrieval.cluster_agreement(points, labels, ["nmi"]) == pytest.approx(
        {"nmi": 2 * shared / entropy}
    )
