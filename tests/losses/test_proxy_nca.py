"""ProxyNCA, ProxyNCA++ and Center Contrastive equal their equations."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses as pml
from torch import Tensor

from dml.losses import CenterContrastiveLoss, ProxyNCALoss, ProxyNCAPlusPlusLoss
from tests.losses.batches import Batch, batches
from tests.losses.compare import assert_matches

SETTINGS = settings(max_examples=50, deadline=None)


def proxy_nca_reference(x: Tensor, y: Tensor, proxies: Tensor, scale: float) -> Tensor:
    apart = F.normalize(x, dim=1)[:, None] - F.normalize(proxies, dim=1)
    log_p = (-scale * apart.square().sum(dim=2)).log_softmax(dim=1)
    return -log_p[range(len(y)), y].mean()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@SETTINGS
@given(batch=batches(zero_rows=False), scale=st.sampled_from([0.01, 1.0, 13.98, 100.0]))
def test_proxy_nca_equals_equation(dtype: torch.dtype, batch: Batch, scale: float) -> None:
    torch.manual_seed(batch.seed)
    loss = ProxyNCALoss(batch.num_classes, batch.embedding_size, scale)
    assert_matches(
        loss, lambda x, y, p: proxy_nca_reference(x, y, p, scale), batch.x, batch.y, dtype
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@SETTINGS
@given(batch=batches(), temperature=st.sampled_from([0.01, 0.1, 1.0]))
def test_proxy_nca_pp_equals_equation(dtype: torch.dtype, batch: Batch, temperature: float) -> None:
    torch.manual_seed(batch.seed)
    loss = ProxyNCAPlusPlusLoss(batch.num_classes, batch.embedding_size, temperature)

    def reference(x: Tensor, y: Tensor, proxies: Tensor) -> Tensor:
        logits = F.normalize(x, dim=1) @ F.normalize(proxies, dim=1).T / temperature
        return (logits.logsumexp(dim=1) - logits[range(len(y)), y]).mean()

    assert_matches(loss, reference, batch.x, batch.y, dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@SETTINGS
@given(batch=batches(), margin=st.sampled_from([-0.1, 0.0, 0.4]))
def test_center_contrastive_equals_equation(
    dtype: torch.dtype, batch: Batch, margin: float
) -> None:
    torch.manual_seed(batch.seed)
    loss = CenterContrastiveLoss(batch.num_classes, batch.embedding_size, 20.0, margin, 0.7)

    def reference(x: Tensor, y: Tensor, proxies: Tensor) -> Tensor:
        terms = []
        for s, c in zip(F.normalize(x, dim=1) @ F.normalize(proxies, dim=1).T, y, strict=True):
            own = 20.0 * (s[c] - margin)
            others = torch.cat([20.0 * s[:c], 20.0 * s[c + 1 :], own[None]])
            terms.append(others.logsumexp(dim=0) - own - 2 * 0.7 * s[c])
        return torch.stack(terms).mean()

    assert_matches(loss, reference, batch.x, batch.y, dtype)


@pytest.mark.parametrize("kind", [ProxyNCALoss, ProxyNCAPlusPlusLoss, CenterContrastiveLoss])
def test_weights_of_a_miner_scale_the_whole_loss_of_an_image(kind) -> None:
    """An image of weight 0, which a miner leaves out, has neither a loss nor a gradient."""
    torch.manual_seed(0)
    x, y = torch.randn(6, 5, dtype=torch.float64, requires_grad=True), torch.arange(6) % 3
    weights = torch.tensor([0.0, 1.0, 2.5, 0.0, 1.0, 0.25], dtype=torch.float64)
    loss = kind(3, 5).double()
    value = loss.batch_loss(x, y, weights)
    alone = torch.stack([loss(x[[i]], y[[i]]) for i in range(6)])
    torch.testing.assert_close(value, (weights * alone).mean())
    (gradient,) = torch.autograd.grad(value, x)
    assert ((gradient != 0).any(dim=1) == (weights > 0)).all()


def test_proxy_nca_is_large_where_pml_drops_the_image() -> None:
    """The image is the proxy of another class: its probability underflows, and PML ignores it."""
    x, y = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
    ours, theirs = ProxyNCALoss(2, 2, 60.0), pml.ProxyNCALoss(2, 2, softmax_scale=60.0)
    for loss in (ours, theirs):
        loss.proxies.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert theirs(x, y) == 0
    assert ours(x, y).item() == pytest.approx(240.0 / 2)
