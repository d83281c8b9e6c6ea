"""Clipping and distances against float64, near zero, over tiles, and their gradients."""

from __future__ import annotations

import pytest
import torch

from dml.losses.distances import clip_to_ball, distances


@pytest.fixture(params=[2**20, 40])
def _tiles(request, monkeypatch):
    """All rows at once, and eight at a time."""
    monkeypatch.setattr(
        "dml.losses.distances._rows_per_tile", lambda x: max(1, request.param // x.shape[1])
    )


def points(apart):
    torch.manual_seed(0)
    x = torch.randn(6, 5)
    return x, x.repeat(4, 1) + apart * torch.randn(24, 5)


@pytest.mark.usefixtures("_tiles")
@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-5])
def test_distances_and_gradients_are_those_of_float64(apart):
    x, y = (z.requires_grad_() for z in points(apart))
    weights = torch.randn(6, 24)
    x64, y64 = (z.detach().double().requires_grad_() for z in (x, y))
    exact = (x64[:, None] - y64).square().sum(dim=2).sqrt()
    ours = distances(x, y)
    torch.testing.assert_close(ours.double(), exact, rtol=1e-6, atol=2e-8)
    found = torch.autograd.grad((weights * ours).sum(), (x, y))
    expected = torch.autograd.grad((weights * exact).sum(), (x64, y64))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)


def test_no_distance_has_no_direction():
    x = torch.randn(3, 4, requires_grad=True)
    r = distances(x, x.detach().clone())
    assert not r.detach().diagonal().any()
    (grad,) = torch.autograd.grad(r.diagonal().sum(), x)
    assert not grad.any()


def test_clipping_has_the_gradient_of_its_formula():
    x = (2 * torch.randn(20, 5, dtype=torch.float64)) * torch.rand(20, 1)
    inside = x.norm(dim=1) < 1
    assert 2 < inside.sum() < 18
    x.requires_grad_()
    assert torch.autograd.gradcheck(clip_to_ball, (x,))
    expected = x / x.norm(dim=1, keepdim=True).clamp(min=1)
    torch.testing.assert_close(clip_to_ball(x), expected)
