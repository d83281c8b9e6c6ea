"""Losses equal the textbook forms that the benchmark compares them with."""

import torch

from dml.losses import MeanFieldClassWiseMultiSimilarityLoss, PotentialFieldLoss
from scripts.benchmarks import _dense_losses
from tests.losses.all_losses import batch


def test_mfcwms_equals_its_textbook_form() -> None:
    torch.manual_seed(0)
    loss = MeanFieldClassWiseMultiSimilarityLoss(7, 5, 3, 7, 0.3).double()
    x, y = batch()
    textbook = _dense_losses.mfcwms(x.double(), y, loss.mean_fields, 3, 7, 0.3)
    torch.testing.assert_close(loss(x.double(), y), textbook, rtol=1e-10, atol=0)


def test_pfml_equals_its_textbook_form() -> None:
    torch.manual_seed(0)
    loss = PotentialFieldLoss(7, 5, 2, delta=0.6).double()
    x, y = batch()
    textbook = _dense_losses.pfml(x.double(), y, loss.proxies, 2, 4.0, 0.6)
    torch.testing.assert_close(loss(x.double(), y), textbook, rtol=1e-10, atol=0)
