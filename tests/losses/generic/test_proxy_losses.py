"""Generic losses with proxies equal those they generalize."""

import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch import Tensor

import dml.losses
from dml.losses import generic

BALANCED = torch.arange(12) % 4


UNBALANCED = torch.tensor([2, 0, 0, 3, 1, 1, 0])


def batch(labels: Tensor) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(len(labels), 5, dtype=torch.float64, requires_grad=True)


def assert_equal(ours, theirs, x: Tensor, y: Tensor) -> None:
    """Values and gradients, of proxies too."""
    mine, others = ours(x, y), theirs(x, y)
    torch.testing.assert_close(mine, others, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(mine, [x, *ours.parameters()]),
        torch.autograd.grad(others, [x, *theirs.parameters()]),
        rtol=1e-8,
        atol=1e-11,
    )


@pytest.mark.parametrize("y", [BALANCED, UNBALANCED])
def test_proxy_anchor_is_pmls(y):
    theirs = pml.ProxyAnchorLoss(6, 5, 0.1, 8).double()
    ours = generic.ProxyAnchorLoss(6, 5, 0.1, 8).double()
    ours.load_state_dict(theirs.state_dict())
    assert_equal(ours, theirs, batch(y), y)


def test_proxy_nca_pp_is_ours_of_every_day():
    theirs = dml.losses.ProxyNCAPlusPlusLoss(6, 5, 0.3).double()
    ours = generic.ProxyNCAPlusPlusLoss(6, 5, 0.3).double()
    ours.load_state_dict(theirs.state_dict())
    assert_equal(ours, theirs, batch(UNBALANCED), UNBALANCED)


def test_proxy_nca_of_the_table_leaves_the_positive_out_of_the_sum():
    x = batch(UNBALANCED)
    loss = generic.OriginalProxyNCALoss(6, 5).double()
    s = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(loss.proxies).T
    own = torch.nn.functional.one_hot(UNBALANCED, 6).bool()
    expected = (s.masked_fill(own, -torch.inf).logsumexp(dim=1) - s[own]).mean()
    torch.testing.assert_close(loss(x, UNBALANCED), expected)
