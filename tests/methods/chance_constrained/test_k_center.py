"""Greedy k-center for all classes at once, and the pool of images."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from dml.methods.chance_constrained.k_center import (
    embed_pool,
    mean_covering_radius,
    pick_k_centers,
)
from dml.retrieval.coverage import gather_points
from tests.methods.tiny_training import Pool, TinyEmbedder, images_of


def radius(pool, centers):
    return max(min(float((p - c).norm()) for c in centers) for p in pool)


def greedy(pool, centers, k):
    """Algorithm 2 for a single class, as printed."""
    chosen: list[int] = []
    for _ in range(k):
        free = [i for i in range(len(pool)) if i not in chosen]
        known = [*centers, *(pool[i] for i in chosen)]
        chosen.append(max(free, key=lambda i: min(float((pool[i] - c).norm()) for c in known)))
    return chosen


@pytest.fixture
def sets():
    torch.manual_seed(3)
    return torch.randn(6, 7, 3, dtype=torch.float64), torch.randn(6, 2, 3, dtype=torch.float64)


@pytest.mark.parametrize("k", [1, 3, 7])
def test_picks_what_the_algorithm_picks(sets, k):
    pool, centers = sets
    picks = pick_k_centers(pool, centers, k)
    expected = [greedy(p, c, k) for p, c in zip(pool, centers, strict=True)]
    assert picks.tolist() == expected


def test_picks_are_distinct_and_the_radius_never_grows(sets):
    pool, centers = sets
    pool[0] = pool[0, 0]  # seven times the same point
    picks = pick_k_centers(pool, centers, 7)
    assert picks.sort(dim=1).values.tolist() == [list(range(7))] * 6
    radii = [
        mean_covering_radius(pool, torch.cat([centers, gather_points(pool, picks[:, :k])], dim=1))
        for k in range(1, 8)
    ]
    assert radii[-1] == 0
    assert all(after <= before for before, after in pairwise(radii))


def test_mean_covering_radius_is_the_mean_over_classes(sets):
    pool, centers = sets
    expected = np.mean([radius(p, c) for p, c in zip(pool, centers, strict=True)])
    assert mean_covering_radius(pool, centers) == pytest.approx(expected, rel=1e-12)


def test_many_classes_are_worked_off_in_chunks(monkeypatch, sets):
    whole = pick_k_centers(*sets, 3)
    radius_of_all = mean_covering_radius(*sets)
    monkeypatch.setattr("dml.methods.chance_constrained.k_center.CLASSES_PER_CHUNK", 4)
    assert torch.equal(pick_k_centers(*sets, 3), whole)
    assert mean_covering_radius(*sets) == pytest.approx(radius_of_all, rel=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_pool_is_embedded_unnormalized_in_evaluation_mode(training):
    labels = torch.arange(3).repeat_interleave(4)
    pool = Pool(images_of(labels), labels)
    embedder = TinyEmbedder(scale=20.0)
    seen = []
    embedder.backbone.register_forward_hook(lambda m, *_: seen.append(m.training))
    embedded = embed_pool(embedder.train(training), pool(4, 0), num_classes=3)
    assert embedded.shape == (3, 4, 3)
    assert embedded.norm(dim=2).max() > 1
    assert seen
    assert not any(seen)
    assert embedder.training == training
