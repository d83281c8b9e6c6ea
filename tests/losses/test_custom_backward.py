"""Hand-written gradients inside torch.compile: those of eager mode, in one graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dml.losses.class_groups import group_by_class, log_mean_exp
from dml.losses.cosine import cosine_similarity, inner_products
from dml.losses.distances import clip_to_ball, distances

LABELS = torch.tensor([0, 3, 2, 1])  # compiled, there are as many slots as images

FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine_similarity": cosine_similarity,
    "inner_products": inner_products,
    "distances": distances,
    "distances within a batch": lambda x, y: distances(x, x) + y.sum(),
    "clip_to_ball": lambda x, y: clip_to_ball(x) @ y.T,
    "log_mean_exp": lambda x, y: log_mean_exp(x @ y.T, group_by_class(LABELS, x.dtype)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_gradients_are_those_of_eager_mode_and_not_zero(name: str) -> None:
    """torch 2.11 gives some of them as zeros, unless told that they are outputs."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    x, y, weights = (torch.randn(4, 4, requires_grad=True) for _ in range(3))

    def value(x: Tensor, y: Tensor) -> Tensor:
        return (FUNCTIONS[name](x, y) * weights.detach()).sum()

    compiled = torch.compile(value, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(x, y), [x, y])
    for gradient, expected in zip(found, torch.autograd.grad(value(x, y), [x, y]), strict=True):
        torch.testing.assert_close(gradient, expected)
        assert gradient.abs().max() > 1e-3
