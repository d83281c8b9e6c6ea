"""NMI and AMI of clusters that are known."""

from __future__ import annotations

import math

import pytest
import torch

from dml.runs.extra_metrics import cluster_agreement


def blobs(centers: torch.Tensor, count: int = 20) -> torch.Tensor:
    noise = torch.randn(len(centers) * count, 2, generator=torch.Generator().manual_seed(0))
    return centers.repeat_interleave(count, dim=0) + 0.01 * noise


def test_clusters_that_are_the_classes():
    points = blobs(torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]]))
    labels = torch.arange(3).repeat_interleave(20) + 100
    assert cluster_agreement(points, labels, ["nmi", "ami"]) == pytest.approx({"nmi": 1, "ami": 1})


def test_the_definition_of_nmi():
    # two clusters of 20; the classes are 30 and 10 of them: 20 | 10 + 10
    points = blobs(torch.tensor([[0.0, 0.0], [9.0, 0.0]]))
    labels = torch.tensor([0] * 30 + [1] * 10)
    shares = {(0, 0): 0.5, (0, 1): 0.25, (1, 1): 0.25}  # class, cluster
    of_class, of_cluster = (0.75, 0.25), (0.5, 0.5)
    shared = sum(p * math.log(p / (of_class[a] * of_cluster[b])) for (a, b), p in shares.items())
    entropy = -sum(p * math.log(p) for p in (*of_class, *of_cluster))
    assert cluster_agreement(points, labels, ["nmi"]) == pytest.approx(
        {"nmi": 2 * shared / entropy}
    )
