"""SupCon and Circle of pytorch-metric-learning equal the equations of their pages, with loops."""

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from dml.core.installation import CONFIGS
from tests.losses.pair_references import similarity


def supcon(s: Tensor, positives: list[int], negatives: list[int]) -> Tensor:
    others = (s[positives + negatives] / 0.1).exp().sum()
    return -sum((s[p] / 0.1).exp().div(others).log() for p in positives) / len(positives)


def circle(s: Tensor, positives: list[int], negatives: list[int]) -> Tensor:
    m, gamma = 0.4, 80
    pulls = [-gamma * (1 + m - s[p].detach()).relu() * (s[p] - 1 + m) for p in positives]
    pushes = [gamma * (s[n].detach() + m).relu() * (s[n] - m) for n in negatives]
    return (1 + sum(map(torch.exp, pushes)) * sum(map(torch.exp, pulls))).log()


@pytest.mark.parametrize("equation", [supcon, circle])
def test_equals_the_equation(equation) -> None:
    torch.manual_seed(0)
    options = OmegaConf.load(CONFIGS / "loss" / f"{equation.__name__}.yaml").loss
    names = ("_target_", "temperature", "m", "gamma")
    loss = instantiate({name: options[name] for name in names if name in options})
    x, y = torch.randn(14, 6, dtype=torch.float64, requires_grad=True), torch.arange(14) % 5
    terms = []
    for q, s in enumerate(similarity(x, x)):
        positives = [i for i in range(14) if y[i] == y[q] and i != q]
        terms.append(equation(s, positives, [i for i in range(14) if y[i] != y[q]]))
    actual, expected = loss(x, y), torch.stack(terms).mean()
    results = [(one, *torch.autograd.grad(one, x)) for one in (actual, expected)]
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)
