"""Logits, by the value of each loss on its own classes."""

import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch.nn.functional import cross_entropy, normalize

from dml import losses
from dml.losses.class_logits import class_logits

SIZES = {"num_classes": 4, "embedding_size": 6}


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    return 3 * torch.randn(12, 6, generator=generator), torch.arange(12) % 4


@pytest.mark.parametrize(
    "loss",
    [
        losses.ProxyNCALoss(**SIZES, softmax_scale=3),
        losses.ProxyNCAPlusPlusLoss(**SIZES),
        losses.CenterContrastiveLoss(**SIZES, lambda_c=0),
        pml.NormalizedSoftmaxLoss(**SIZES),
        pml.ArcFaceLoss(**SIZES, margin=0),
        pml.CosFaceLoss(**SIZES, margin=0),
        pml.ProxyNCALoss(**SIZES, softmax_scale=3),
        pml.SoftTripleLoss(**SIZES, margin=0, centers_per_class=3),
    ],
    ids=lambda loss: f"{type(loss).__module__.split('.')[0]}-{type(loss).__name__}",
)
def test_cross_entropy_of_the_logits_is_the_loss_without_its_margin(loss, batch):
    expected = loss(*batch).detach()
    assert float(cross_entropy(class_logits(loss, batch[0]), batch[1])) == pytest.approx(
        float(expected), rel=1e-4
    )


def test_logits_of_proxy_anchor_are_scaled_similarities(batch):
    loss = pml.ProxyAnchorLoss(**SIZES, alpha=16)
    expected = 16 * normalize(batch[0]) @ normalize(loss.proxies).T
    torch.testing.assert_close(class_logits(loss, batch[0]), expected.detach())


@pytest.mark.parametrize("loss", [pml.ContrastiveLoss(), losses.MeanFieldContrastiveLoss(4, 6)])
def test_losses_without_logits(loss, batch):
    with pytest.raises(ValueError, match=f"loss: {type(loss).__name__} has no logits of classes"):
        class_logits(loss, batch[0])
