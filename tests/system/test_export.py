"""`torch.export` of embedders and of losses."""

from __future__ import annotations

import pytest
import torch

from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from tests.losses.all_losses import LOSSES, batch


@pytest.mark.parametrize("head", ["linear", "linear+relu", "none"])
def test_an_exported_embedder_is_the_embedder(head: str) -> None:
    torch.manual_seed(0)
    size = None if head == "none" else 8
    embedder = Embedder(SmallCNN(), size, head=head).eval()
    images = torch.randn(2, 3, 16, 16)
    exported = torch.export.export(embedder, (images,)).module()
    other = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(exported(other), embedder(other))


@pytest.mark.parametrize("name", ["mfcwms", "c1"])
def test_other_losses_are(name: str) -> None:
    x, y = batch()
    loss = LOSSES[name]()
    exported = torch.export.export(loss, (x, y)).module()
    torch.testing.assert_close(exported(2 * x + 1, y), loss(2 * x + 1, y))
