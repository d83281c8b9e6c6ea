"""Measures of a network by their definitions, for embeddings of any length."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from dml.losses import MeanFieldContrastiveLoss
from dml.methods.extra_metrics import ExtraMetrics
from dml.methods.plain import Plain
from dml.retrieval import geometry
from dml.retrieval.embeddings import SplitEmbeddings


@pytest.fixture
def points():
    """Embeddings of test and of training images, of other lengths, and their labels."""
    generator = torch.Generator().manual_seed(0)
    test, training = torch.randn(40, 4, generator=generator), torch.randn(30, 4)
    return 3 * test, torch.arange(40) % 5, 0.2 * training, torch.arange(30) % 3


def measure(points, names):
    test, labels, training, classes = points
    loss = MeanFieldContrastiveLoss(3, 4)
    metrics = ExtraMetrics(names, nn.Identity(), Plain(loss), lambda: (training, classes), list)
    best = {"metrics": metrics.at_evaluation(SplitEmbeddings(test, labels))}
    rows = [{"w2": 9.0}, {"w2": 1.0}, {"w2": 2.0}]  # the first one before training
    return metrics.of_run(rows, best, SplitEmbeddings(test, labels)), loss.mean_fields.detach()


def test_measures_of_the_sphere_are_those_of_unit_vectors(points):
    found, _ = measure(points, ["alignment", "uniformity", "utilization"])
    test, labels, training, _ = points
    assert found == pytest.approx(
        {
            "alignment": geometry.alignment(normalize(test), labels),
            "uniformity": geometry.uniformity(normalize(test)),
            "utilization": geometry.utilization(normalize(test), normalize(training)),
        }
    )


def test_w2_of_a_run_is_the_mean_of_its_evaluations_without_the_untrained_one(points):
    assert measure(points, ["w2"])[0] == {"w2": 1.5}


def test_w2_is_the_distance_of_proxies_to_training_images_on_the_sphere(points):
    test, labels, training, classes = points
    loss = MeanFieldContrastiveLoss(3, 4)
    metrics = ExtraMetrics(["w2"], nn.Identity(), Plain(loss), lambda: (training, classes), list)
    found = metrics.at_evaluation(SplitEmbeddings(test, labels))
    fields, images = normalize(loss.mean_fields.detach()), normalize(training)
    nearest = [
        min(float((fields[c] - image).norm()) for image in images[classes == c]) for c in range(3)
    ]
    assert found["w2"] == pytest.approx(sum(nearest) / 3, rel=1e-5)
