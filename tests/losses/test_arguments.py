"""Valid and invalid arguments of losses."""

from __future__ import annotations

import pytest
import torch

from dml.losses import C1Loss, MeanFieldNCALoss
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
