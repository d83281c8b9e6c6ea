"""HIST equals its equations, written with loops."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dml.losses import HISTLoss


def hist_reference(x: Tensor, y: Tensor, loss: HISTLoss) -> Tensor:
    u, mu = F.normalize(x), F.normalize(loss.means)
    sigma = F.relu6(loss.log_variances).exp()
    m = ((u[:, None] - mu).square() / sigma).sum(2)
    first = torch.stack([-(-loss.tau * m[i]).log_softmax(0)[c] for i, c in enumerate(y)]).mean()
    present = y.unique().tolist()
    h = torch.ones(len(y), len(present), dtype=x.dtype)
    for i, j in torch.cartesian_prod(*map(torch.arange, h.shape)).tolist():
        if y[i] != present[j]:
            h[i, j] = (-loss.alpha * m[i, present[j]]).exp()
    rows, columns = h.sum(1).pow(-0.5).diag(), h.sum(0).reciprocal().diag()
    g = rows @ h @ columns @ h.T @ rows
    z = F.batch_norm(
        g @ loss.first(x), None, None, loss.norm_weight, loss.norm_bias, training=True, eps=1e-5
    )
    logits = g @ loss.second(F.leaky_relu(z, 0.1))
    return first + loss.lambda_s * F.cross_entropy(logits, y)


@pytest.mark.parametrize("classes", [2, 5, 9])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_equals_the_equations(classes: int, scale: float) -> None:
    torch.manual_seed(classes)
    loss = HISTLoss(9, 6, 7, tau=16.0, alpha=2.0, lambda_s=0.7).double()
    with torch.no_grad():
        loss.norm_weight.uniform_(0.5, 2)
        loss.norm_bias.normal_()
        loss.log_variances.uniform_(-2, 8)  # beyond both bounds of relu6
    x = (scale * torch.randn(12, 6, dtype=torch.float64)).requires_grad_()
    y = torch.randint(classes, (12,))
    actual, expected = loss(x, y), hist_reference(x, y, loss)
    inputs = [x, *loss.parameters()]
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
    for one, other in zip(
        torch.autograd.grad(actual, inputs), torch.autograd.grad(expected, inputs), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10 * float(other.abs().max()))


def test_first_means_and_variances_are_those_of_he_et_al_by_outputs() -> None:
    torch.manual_seed(0)
    loss = HISTLoss(num_classes=200, embedding_size=30)
    for parameter in (loss.means, loss.log_variances):
        assert parameter.std().item() == pytest.approx((2 / 200) ** 0.5, rel=0.05)
        assert abs(parameter.mean().item()) < 0.01


def test_the_network_can_be_left_out() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(6, 5), torch.arange(6) % 3
    loss = HISTLoss(4, 5, lambda_s=0.0)
    with torch.no_grad():
        loss.log_variances.zero_()
        loss.means.copy_(torch.eye(4, 5))
    logits = 32 * (2 * F.normalize(x)[:, :4] - 2)
    torch.testing.assert_close(loss(x, y), F.cross_entropy(logits, y))
