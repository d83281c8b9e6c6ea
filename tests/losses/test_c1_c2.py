"""C1 and C2 equal their equations."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dml.losses import C1Loss, C2Loss
from tests.losses.batches import Batch, batches
from tests.losses.compare import assert_matches

FLOATS = [torch.float64, torch.float32]


SETTINGS = settings(max_examples=50, deadline=None)


def clipped(x: Tensor) -> Tensor:
    return x / x.norm(dim=1, keepdim=True).clamp_min(1)


def pairs(y: Tensor, y_ref: Tensor, among_itself: bool) -> list[tuple[int, int, bool]]:
    return [
        (i, j, bool(y[i] == y_ref[j]))
        for i in range(len(y))
        for j in range(len(y_ref))
        if not (among_itself and i == j)
    ]


def c1_reference(x: Tensor, y: Tensor, references: Tensor, y_ref: Tensor, itself: bool) -> Tensor:
    s = clipped(x) @ clipped(references).T
    total = 0 * x.sum()
    for i, j, positive in pairs(y, y_ref, itself):
        total = total + (1 - s[i, j] - 1e-5 if positive else s[i, j] - 0.5).clamp_min(0)
    return total / len(x)


def c2_reference(
    x: Tensor, y: Tensor, references: Tensor, y_ref: Tensor, itself: bool, m_p: float, m_n: float
) -> Tensor:
    u, v = clipped(x), clipped(references)
    terms: dict[bool, list[Tensor]] = {True: [], False: []}
    for i, j, positive in pairs(y, y_ref, itself):
        r = (u[i] - v[j]).norm()
        hinge = r - m_p if positive else m_n - r
        if hinge > 0:
            terms[positive].append(hinge)
    zero = 0 * x.sum()
    return sum((torch.stack(t).mean() if t else zero for t in terms.values()), zero)


@pytest.mark.parametrize("dtype", FLOATS)
@SETTINGS
@given(batch=batches())
def test_c1_equals_equation(dtype: torch.dtype, batch: Batch) -> None:
    assert_matches(C1Loss(), lambda x, y: c1_reference(x, y, x, y, True), batch.x, batch.y, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@SETTINGS
@given(batch=batches(), m_p=st.sampled_from([0.0, 0.2652]), m_n=st.sampled_from([0.3841, 1.7]))
def test_c2_equals_equation(dtype: torch.dtype, batch: Batch, m_p: float, m_n: float) -> None:
    assert_matches(
        C2Loss(m_p, m_n),
        lambda x, y: c2_reference(x, y, x, y, True, m_p, m_n),
        batch.x,
        batch.y,
        dtype,
    )
