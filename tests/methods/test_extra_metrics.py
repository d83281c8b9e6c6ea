"""Measures of a network by their definitions, for embeddings of any length."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from dml.losses import MeanFieldContrastiveLoss
from dml.methods.extra_metrics import ExtraMetrics, measure_embeddings, verification_errors
from dml.methods.plain import Plain
from dml.retrieval import geometry, match_errors_at, match_thresholds
from dml.retrieval.coverage import covering_radius
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


def test_distances_of_ccp_are_those_of_the_vectors_as_they_are(points):
    """At an evaluation and of a split alone; lengths count, unlike in the measures above."""
    test, labels, *_ = points
    names = ["covering_radius", "inter_class_distance"]
    expected = {
        "covering_radius": covering_radius(test, labels),
        "inter_class_distance": geometry.inter_class_distance(test, labels),
    }
    assert measure(points, names)[0] == expected
    split = SplitEmbeddings(test, labels)
    assert measure_embeddings(names, split) == expected
    assert measure_embeddings(names, split._replace(query=normalize(test))) != expected


def test_values_of_a_run_are_those_of_its_best_evaluation(points):
    test, labels, training, classes = points
    method = Plain(MeanFieldContrastiveLoss(3, 4))
    names = ["regularizer", "w2"]
    metrics = ExtraMetrics(names, nn.Identity(), method, lambda: (training, classes), list)
    best = {"metrics": {"regularizer": 0.25, "w2": 5.0}}
    rows = [{"w2": 7.0, "regularizer": 4.0}]  # only the untrained network was evaluated
    found = metrics.of_run(rows, best, SplitEmbeddings(test, labels))
    assert found == {"regularizer": 0.25, "w2": 7.0}


@pytest.mark.parametrize("weight", [0.0, 3.0])
def test_the_regularizer_is_that_of_eq_8_without_its_weight(points, weight):
    test, labels, *_ = points
    loss = MeanFieldContrastiveLoss(3, 4, negative_margin=1.5, lambda_mf=weight)
    metrics = ExtraMetrics(["regularizer"], nn.Identity(), Plain(loss), list, list)
    found = metrics.at_evaluation(SplitEmbeddings(test, labels))
    fields = normalize(loss.mean_fields.detach().double())
    apart = (1.5 - (1 - fields @ fields.T)).clamp(min=0).square().fill_diagonal_(0)
    assert found == {"regularizer": pytest.approx(float(apart.sum() / 3), rel=1e-5)}


class Mixing(Plain):
    """A method that trains on mixes of each batch, too."""

    def extra_embeddings(self, embedder, batches):
        assert not embedder.training
        for images, _ in batches:
            yield normalize(embedder(images))


def test_utilization_counts_what_a_method_trains_on_beside_the_images(points):
    test, labels, training, classes = points
    batches = [(test[:3], labels[:3]), (test[3:8], labels[3:8])]
    method = Mixing(MeanFieldContrastiveLoss(3, 4))
    embedder = nn.Linear(4, 4).requires_grad_(False).train()
    metrics = ExtraMetrics(
        ["utilization"], embedder, method, lambda: (training, classes), lambda: batches
    )
    found = metrics.of_run([], {"metrics": {}}, SplitEmbeddings(test, labels))["utilization"]
    every = torch.cat([normalize(training), normalize(embedder(test[:8]))])
    assert found == pytest.approx(geometry.utilization(normalize(test), every))
    assert found < geometry.utilization(normalize(test), normalize(training))


@pytest.mark.parametrize("names", [["nmi"], ["ami"], ["nmi", "ami"]])
def test_clusters_are_those_of_the_vectors_as_they_are(points, names):
    """Classes that differ in length alone agree with clusters of the vectors, not of directions."""
    labels = torch.arange(40) % 4
    test = torch.ones(40, 4) * (1 + labels[:, None]) + 1e-3 * torch.randn(40, 4)
    found = measure_embeddings(names, SplitEmbeddings(test, labels))
    assert found == pytest.approx(dict.fromkeys(names, 1.0))


def of_split(points, split, names):
    """The measures of a split by a network that is trained."""
    _, _, training, classes = points
    method = Plain(MeanFieldContrastiveLoss(3, 4))
    metrics = ExtraMetrics(names, nn.Identity(), method, lambda: (training, classes), list)
    return metrics.of_run([], {"metrics": {}}, split)


def test_matches_of_a_query_and_gallery_split_are_those_of_all_its_images(points):
    test, labels, *_ = points
    whole = SplitEmbeddings(test, labels)
    parted = SplitEmbeddings(test[:15], labels[:15], test[15:], labels[15:])
    names = ["fnmr_at_fmr_0.01", "fnmr_at_fmr_0.001"]
    found = of_split(points, parted, names)
    assert found == of_split(points, whole, names)
    assert found != of_split(points, SplitEmbeddings(test[:15], labels[:15]), names)


def test_validation_images_choose_the_threshold(points):
    test, labels, training, classes = points
    rates = {"fnmr_at_fmr_0.01": 0.01}
    one, other = 10 * training[:11], 10 * training[11:]
    validation = SplitEmbeddings(one, classes[:11], other, classes[11:])
    found = verification_errors(rates, SplitEmbeddings(test, labels), validation)
    (chosen,) = match_thresholds(10 * training, classes, [0.01])
    (tested,) = match_errors_at(test, labels, [chosen.threshold])
    assert found == {
        "fnmr_at_fmr_0.01": match_thresholds(test, labels, [0.01])[0].fnmr,
        "fnmr_at_fmr_0.01_threshold": chosen.threshold,
        "fnmr_at_fmr_0.01_test_fnmr": tested.fnmr,
        "fnmr_at_fmr_0.01_test_fmr": tested.fmr,
    }


def test_validation_images_of_one_class_choose_no_threshold(points, caplog):
    test, labels, *_ = points
    rates, validation = {"fnmr_at_fmr_0.01": 0.01}, SplitEmbeddings(test, torch.zeros_like(labels))
    found = verification_errors(rates, SplitEmbeddings(test, labels), validation)
    assert found.keys() == rates.keys()
    assert "evaluation.measures: no threshold of the validation images" in caplog.text


def test_a_query_in_the_gallery_is_no_match_of_its_own(points):
    test, labels, *_ = points
    both = SplitEmbeddings(test, labels, test, labels, torch.arange(len(test)))
    alone = of_split(points, SplitEmbeddings(test, labels), ["mrr_at_r"])
    assert of_split(points, both, ["mrr_at_r"]) == pytest.approx(alone)
    assert of_split(points, both._replace(self_index=None), ["mrr_at_r"])["mrr_at_r"] == 1
