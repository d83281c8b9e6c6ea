"""Seeds of all generators of random numbers that a user's augmentation or sampler may draw from."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

PML = "pytorch_metric_learning.utils.common_functions"  # its samplers and miners draw by it


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds Python, NumPy, PyTorch (CPU) and pytorch-metric-learning; restores all at the end.

    Args:
        seed: 0..2³²−1.
    """
    of_python, of_numpy, of_torch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    pml: Any = sys.modules.get(PML)
    is_replaced = pml is not None and pml.NUMPY_RANDOM is not np.random  # by the user's program
    of_pml = pml.NUMPY_RANDOM if is_replaced else None
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed CUDA as well
    if is_replaced:
        pml.NUMPY_RANDOM = np.random.RandomState(seed)
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)
        if is_replaced:
            pml.NUMPY_RANDOM = of_pml
