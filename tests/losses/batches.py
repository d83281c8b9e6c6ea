"""Hypothesis strategies: batches that occur in training, and degenerate batches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    x: Tensor
    y: Tensor
    num_classes: int
    seed: int

    @property
    def embedding_size(self) -> int:
        return self.x.shape[1]


@st.composite
def batches(draw: st.DrawFn, *, zero_rows: bool = True, max_classes: int = 7) -> Batch:
    """Unbalanced batches with absent classes, one image, duplicated rows, zero rows, any scale."""
    num_classes = draw(st.integers(1, max_classes))
    size = draw(st.integers(1, 9))
    dimensions = draw(st.integers(2, 6))
    y = torch.tensor(draw(st.lists(st.integers(0, num_classes - 1), min_size=size, max_size=size)))
    seed = draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, dimensions, generator=generator, dtype=torch.float64)
    x *= draw(st.sampled_from([1e-3, 1.0, 1e3]))
    for kind in draw(st.lists(st.sampled_from(["duplicate", "zero"]), max_size=2)):
        row = draw(st.integers(0, size - 1))
        if kind == "duplicate":
            x[row] = x[0]
        elif zero_rows:
            x[row] = 0
    return Batch(x, y, num_classes, seed)
