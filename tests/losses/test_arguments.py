"""Valid and invalid arguments of losses."""

from __future__ import annotations

import math

import pytest
import torch

from dml.losses import (
    C1Loss,
    ContrastivePotentialLoss,
    MeanFieldClassWiseMultiSimilarityLoss,
    MeanFieldContrastiveLoss,
    MeanFieldNCALoss,
    PotentialFieldLoss,
)
from tests.losses.all_losses import batch


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.uint64], ids=str)
def test_labels_of_any_integer_type(dtype: torch.dtype) -> None:
    x, y = batch()
    # a small type counts more classes than it holds
    for loss in (C1Loss(), MeanFieldNCALoss(300, 5)):
        assert torch.equal(loss(x, y.to(dtype)), loss(x, y))


@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (torch.ones(2, 5, dtype=torch.long), [0, 1], "embeddings must be a matrix of floating"),
        (torch.ones(2, 4), [0, 1], "embeddings must have 5 columns .*, got 4"),
        (torch.ones(2, 5), [0], "labels must hold one label for each of the 2 embeddings"),
        (torch.ones(2, 5), [0, 7], r"labels must be in 0\.\.6, got 0\.\.7"),
        (torch.full((2, 5), torch.inf), [0, 1], "embeddings must be finite"),
    ],
)
def test_wrong_batches_are_refused(embeddings, labels, message):
    with pytest.raises(ValueError, match=message):
        MeanFieldNCALoss(7, 5)(embeddings, torch.tensor(labels))


@pytest.mark.parametrize(
    ("loss", "name", "value"),
    [
        (MeanFieldContrastiveLoss, "lambda_mf", -1e-9),
        (MeanFieldContrastiveLoss, "average", "image"),
        (MeanFieldContrastiveLoss, "embedding_size", 1.5),
        (MeanFieldClassWiseMultiSimilarityLoss, "alpha", 0.0),
        (MeanFieldClassWiseMultiSimilarityLoss, "delta", math.nan),
        (PotentialFieldLoss, "alpha", -1e-9),
        (PotentialFieldLoss, "proxies_per_class", -1),
        (PotentialFieldLoss, "scale", "mean"),
        (ContrastivePotentialLoss, "repulsion", "none"),
    ],
)
def test_wrong_hyperparameters_are_refused(loss, name, value):
    sizes = {"num_classes": 7, "embedding_size": 5}
    if issubclass(loss, PotentialFieldLoss | ContrastivePotentialLoss):
        sizes["proxies_per_class"] = 2
    with pytest.raises(ValueError, match=name):
        loss(**(sizes | {name: value}))
