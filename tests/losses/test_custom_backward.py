"""Hand-written gradients inside torch.compile: those of eager mode, in one graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dml.losses.cosine import cosine_similarity
from dml.losses.distances import distances

FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cosine_similarity": cosine_similarity,
    "distances": distances,
    "distances within a batch": lambda x, y: distances(x, x) + y.sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_gradients_are_those_of_eager_mode_and_not_zero(name: str) -> None:
    """torch 2.11 gives no gradient to outputs that an in-place operation wrote."""
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
