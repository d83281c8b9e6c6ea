"""Changes of similarities, compared with finite steps."""

import pytest
import torch
from torch.nn import functional as F

from dml.methods.metrix.analysis import similarity_changes


def draw(seed=0, items=8, dim=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(items, dim, generator=generator).double(), torch.arange(items) // 2


def contrastive(u, labels):
    similar = (u @ u.T)[torch.ones(len(u), len(u)).triu(1).bool()]
    same = (labels[:, None] == labels)[torch.ones(len(u), len(u)).triu(1).bool()]
    return (1 - similar[same]).sum() + similar[~same].clamp(min=-0.2).exp().sum()


def test_they_equal_the_difference_of_a_small_step():
    x, labels = draw()
    found = similarity_changes(lambda u: contrastive(u, labels), x, labels)
    u = F.normalize(x).requires_grad_()
    contrastive(u, labels).backward()
    sphere = u.grad - (u.grad * u).sum(1, keepdim=True) * u
    step = 1e-7
    moved = F.normalize(u - step * sphere / sphere.norm())
    change = ((moved @ moved.T - u @ u.T) / step).detach()
    above = torch.ones(len(x), len(x)).triu(1).bool()
    same = labels[:, None] == labels
    assert found.positive == pytest.approx(float(change[same & above].mean()), abs=1e-5)
    assert found.negative == pytest.approx(float(change[~same & above].mean()), abs=1e-5)
    assert found.positive_share == float((change[same & above] > 0).double().mean())
    assert found.negative_share == float((change[~same & above] > 0).double().mean())


def test_none_without_a_gradient_or_without_pairs():
    x, labels = draw()
    assert similarity_changes(lambda u: 0 * u.sum(), x, labels) is None
    assert similarity_changes(lambda u: u.sum(), x, torch.arange(len(x))) is None
