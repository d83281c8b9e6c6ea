"""Measured and predicted positivity of mixes."""

import pytest
import torch
from pytorch_metric_learning import losses as pml

from dml.core.errors import UserError
from dml.methods.metrix.analysis import measure_positivity
from tests.methods.tiny_embedder import tiny_embedder


def test_single_mixes_are_positive_exactly_as_predicted():
    """One positive and one negative: the paper's simplifying assumption holds."""
    torch.manual_seed(0)
    labels = torch.tensor([0, 0, 1])
    images = [(torch.randn(3, 3, 6, 6, dtype=torch.float64), labels) for _ in range(200)]
    curve = measure_positivity(pml.MultiSimilarityLoss(2, 4, 0.7), tiny_embedder(), images, bins=5)
    torch.testing.assert_close(curve.measured, curve.predicted, equal_nan=True)
    shares = curve.measured[~curve.measured.isnan()]
    assert shares[0] < shares[-1]


def test_one_class_alone_is_one_line():
    images = [(torch.randn(3, 3, 6, 6, dtype=torch.float64), torch.zeros(3, dtype=torch.long))]
    with pytest.raises(UserError, match=r"data\.batch_size"):
        measure_positivity(pml.MultiSimilarityLoss(), tiny_embedder(), images)
