"""Analyses of Metrix: mixed embeddings, positivity, and changes of similarities."""

import pytest
import torch
from pytorch_metric_learning import losses as pml

from dml.core.errors import UserError
from dml.methods.metrix import TYPES, Metrix
from dml.methods.metrix.analysis import measure_positivity
from dml.retrieval.geometry import utilization
from tests.methods.tiny_embedder import tiny_embedder

LABELS = torch.tensor([2, 0, 0, 3, 1, 1, 0])


def batches(count):
    torch.manual_seed(0)
    return [(torch.randn(7, 3, 6, 6, dtype=torch.float64), LABELS) for _ in range(count)]


@pytest.mark.parametrize("kind", TYPES)
def test_mixed_embeddings_can_only_lower_the_utilization(kind):
    embedder = tiny_embedder()
    (images, _), (others, _) = batches(2)
    queries, training = embedder(others).detach(), embedder(images).detach()
    metrix = Metrix(pml.MultiSimilarityLoss(), types=[kind])
    mixed = list(metrix.extra_embeddings(embedder, [(images, LABELS)]))
    assert torch.allclose(mixed[0].norm(dim=1), torch.ones(len(mixed[0]), dtype=torch.float64))
    assert utilization(queries, [training, *mixed]) < utilization(queries, training)
    assert utilization(queries, queries) < 1e-12


def test_single_mixes_are_positive_exactly_as_predicted():
    """One positive and one negative: the paper's simplifying assumption holds."""
    torch.manual_seed(0)
    labels = torch.tensor([0, 0, 1])
    images = [(torch.randn(3, 3, 6, 6, dtype=torch.float64), labels) for _ in range(200)]
    curve = measure_positivity(pml.MultiSimilarityLoss(2, 4, 0.7), tiny_embedder(), images, bins=5)
    torch.testing.assert_close(curve.measured, curve.predicted, equal_nan=True)
    shares = curve.measured[~curve.measured.isnan()]
    assert shares[0] < shares[-1]


def test_each_pair_of_a_batch_has_a_factor_of_its_own():
    (batch,) = batches(1)
    curve = measure_positivity(pml.MultiSimilarityLoss(), tiny_embedder(), [batch], bins=5)
    assert (~curve.measured.isnan()).sum() > 1


def test_a_loss_without_a_prediction_has_a_measured_curve(tmp_path):
    curve = measure_positivity(pml.ContrastiveLoss(0, 1.2), tiny_embedder(), batches(5))
    assert curve.predicted is None
    assert not curve.measured.isnan().all()
    curve.write(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    first, line = (tmp_path / "curve.csv").read_text().splitlines()[:2]
    assert first == "lambda,measured,predicted"
    assert (line.startswith("0.025,"), line.endswith(",nan")) == (True, True)


def test_one_class_alone_is_one_line():
    images = [(torch.randn(3, 3, 6, 6, dtype=torch.float64), torch.zeros(3, dtype=torch.long))]
    with pytest.raises(UserError, match=r"data\.batch_size"):
        measure_positivity(pml.MultiSimilarityLoss(), tiny_embedder(), images)
