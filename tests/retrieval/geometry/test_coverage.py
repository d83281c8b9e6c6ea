from itertools import combinations, permutations
from statistics import fmean

import pytest
import torch

from dml.retrieval import geometry


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
    found = geometry.proxy_alignment(proxies, proxy_labels, embeddings, labels)
    assert found == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueError, match="no class has both"):
        geometry.proxy_alignment(proxies, proxy_labels, embeddings, labels + 100)


def radius(pool, centers):
    return max(min(float((p - c).norm()) for c in centers) for p in pool)


@pytest.mark.parametrize("with_covered", [False, True])
def test_greedy_k_center(with_covered, generator):
    pool = torch.randn(12, 2, generator=generator, dtype=torch.float64)
    covered = torch.randn(2, 2, generator=generator, dtype=torch.float64) if with_covered else None
    picks, radii = geometry.greedy_k_center(pool, 12, covered)
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
    picks, radii = geometry.greedy_k_center(torch.ones(4, 2), 4)
    assert sorted(picks.tolist()) == [0, 1, 2, 3]
    assert radii.tolist() == [0, 0, 0, 0]
    picks, _ = geometry.greedy_k_center(torch.ones(4, 2), 3, torch.ones(1, 2))
    assert len(set(picks.tolist())) == 3
    with pytest.raises(ValueError, match="k must lie between 1 and the 4"):
        geometry.greedy_k_center(torch.ones(4, 2), 5)


def test_covering_radius_averages_over_picks_and_classes():
    # class 0: 0 and 3 and 10: starts at 3 (nearest to the mean 4.33): radii 7, 3, 0; class 1: 0
    embeddings = torch.tensor([[0.0], [5.0], [3.0], [10.0]])
    labels = torch.tensor([0, 1, 0, 0])
    assert geometry.covering_radius(embeddings, labels) == pytest.approx((10 / 3 + 0) / 2)
