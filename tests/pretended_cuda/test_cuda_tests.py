"""Tests that are marked `cuda`, for GPUs, on the pretended device.

Left out: those that time a GPU or need faiss's own kernels, and steps, which `test_steps` has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from tests.losses import test_metric_loss
from tests.system import test_on_cuda
from tests.system.test_on_cuda import embedded

__all__ = ["embedded"]  # a fixture


def without_skips(test: Callable[..., None]) -> Callable[..., None]:
    """Returns a test that runs without a GPU too, with its parameters."""

    @wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        test(*arguments, **options)

    marks: list[pytest.Mark] = getattr(test, "pytestmark", [])
    run.pytestmark = [mark for mark in marks if mark.name == "parametrize"]  # type: ignore[attr-defined]
    return run


test_cuda_equals_cpu = without_skips(test_metric_loss.test_cuda_equals_cpu)
test_ccp = without_skips(test_on_cuda.test_ccp_takes_the_steps_of_the_cpu)
test_scores = without_skips(test_on_cuda.test_scores_are_those_of_the_cpu)
