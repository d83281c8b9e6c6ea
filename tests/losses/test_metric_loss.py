"""All losses in the code of a user: copies, precision, autocast, torch.compile."""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning.losses import ProxyAnchorLoss, SoftTripleLoss
from torch import nn

from dml.losses import PotentialFieldLoss
from dml.losses.metric_loss import loss_proxies
from tests.losses.all_losses import LOSSES, PROXY_LOSSES, batch, value_and_gradients

HAND_WRITTEN = [name for name in PROXY_LOSSES if name != "hist"]  # gradients


@pytest.fixture(params=LOSSES)
def loss(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return LOSSES[request.param]()


def test_lone_zero_equal_opposite_and_tiny_embeddings_are_finite(loss: nn.Module) -> None:
    x = torch.randn(5, 5)
    x[1], x[2], x[3], x[4] = x[0], 0, -x[0], 1e-30
    labels = torch.tensor([[0, 0, 0, 1, 2], [0, 0, 0, 0, 0], [0, 1, 2, 3, 4]])
    for images in (x, x[:1], torch.zeros_like(x[:1]), torch.zeros_like(x)):
        for y in labels[:, : len(images)]:
            results = value_and_gradients(loss, loss, images, y)
            assert all(result.isfinite().all() for result in results), y


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_is_off(loss: nn.Module, dtype: torch.dtype) -> None:
    x, y = batch()
    expected = value_and_gradients(loss, loss, x, y)

    def call(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=dtype):
            return loss(x, y)

    assert all(map(torch.equal, value_and_gradients(call, loss, x, y), expected))
    assert torch.equal(call(x.half(), y), loss(x.half().float(), y))


MEASURED_BY_CDIST = {"c2", "triplet"}  # torch 2.11 has no second derivative of cdist


@pytest.mark.parametrize("name", LOSSES)
def test_a_penalty_on_the_gradient_is_trained_or_an_error(name: str) -> None:
    torch.manual_seed(0)
    loss, (x, y), direction = LOSSES[name]().double(), batch(), torch.randn(9, 5).double()
    x = x.double().requires_grad_()
    if name in HAND_WRITTEN:
        with pytest.raises(RuntimeError, match="no second derivative"):
            torch.autograd.grad(loss(x, y), x, create_graph=True)
        return
    (gradient,) = torch.autograd.grad(loss(x, y), x, create_graph=True)
    if name in MEASURED_BY_CDIST and torch.__version__ < (2, 12):
        with pytest.raises(NotImplementedError, match="_cdist_backward"):
            torch.autograd.grad((gradient * direction).sum(), x)
        return
    (second,) = torch.autograd.grad((gradient * direction).sum(), x)

    def gradient_at(z: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(loss(z, y), z)[0]

    step = 1e-6 * direction
    expected = (gradient_at(x + step) - gradient_at(x - step)) / 2e-6
    torch.testing.assert_close(second, expected, rtol=1e-4, atol=1e-6)


# sums over tiles leave the graph on purpose
LEAVE_THE_GRAPH = {"mfcwms with regularizer", "pfml", "cpml"}


@pytest.mark.parametrize(
    "name", [n if n == "mfcwms" else pytest.param(n, marks=pytest.mark.soak) for n in LOSSES]
)
def test_compiled_equals_eager(name: str) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    loss = LOSSES[name]()
    x, y = batch()
    fullgraph = name not in LEAVE_THE_GRAPH
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=fullgraph)
    actual = value_and_gradients(compiled, loss, x, y)
    torch.testing.assert_close(actual, value_and_gradients(loss, loss, x, y), rtol=1e-5, atol=1e-6)


def test_proxies_of_losses_are_ordered_by_class():
    torch.manual_seed(0)
    soft = SoftTripleLoss(3, 4, centers_per_class=2)
    proxies, labels = loss_proxies(soft)
    assert torch.equal(proxies[3], soft.fc[:, 3])
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert loss_proxies(ProxyAnchorLoss(3, 4))[1].tolist() == [0, 1, 2]
    assert loss_proxies(PotentialFieldLoss(3, 4, 5))[0].shape == (15, 4)
