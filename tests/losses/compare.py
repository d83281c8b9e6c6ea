"""Compares a loss with a slow reference: value and gradient, in float64 and float32."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}
FLOOR = {torch.float64: 1e-11, torch.float32: 2e-6}

Reference = Callable[..., Tensor]


def relative_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    """Gradient times the length of the row, so that rows of all lengths have the same weight."""
    return gradient * x.norm(dim=1, keepdim=True).clamp_min(1e-12)


def assert_close(actual: Tensor, expected: Tensor, dtype: torch.dtype, what: str) -> None:
    assert actual.isfinite().all(), f"{what} is not finite"
    error = (actual.double() - expected.double()).abs().max().item()
    allowed = TOLERANCE[dtype] * expected.abs().max().item() + FLOOR[dtype]
    assert error <= allowed, f"{what}: {error} > {allowed} ({dtype})"


def assert_matches(
    loss: nn.Module, reference: Reference, embeddings: Tensor, labels: Tensor, dtype: torch.dtype
) -> None:
    """`reference(embeddings, labels, *parameters)` runs in float64 on the same rounded inputs."""
    loss = loss.to(dtype)
    x = embeddings.to(dtype).requires_grad_()
    value = loss(x, labels)
    parameters = list(loss.parameters())
    value.backward()

    x_ref = x.detach().double().requires_grad_()
    parameters_ref = [p.detach().double().requires_grad_() for p in parameters]
    expected = reference(x_ref, labels, *parameters_ref)
    inputs = [x_ref, *parameters_ref]
    gradients = torch.autograd.grad(expected, inputs, allow_unused=True)

    assert value.dtype == dtype
    assert value.ndim == 0
    assert_close(value.detach(), expected.detach(), dtype, "value")
    for i, (mine, theirs, point) in enumerate(
        zip([x, *parameters], gradients, inputs, strict=True)
    ):
        theirs = torch.zeros_like(point) if theirs is None else theirs
        got = torch.zeros_like(theirs) if mine.grad is None else mine.grad.double()
        assert_close(
            relative_gradient(point.detach(), got),
            relative_gradient(point.detach(), theirs),
            dtype,
            f"gradient {i}",
        )
