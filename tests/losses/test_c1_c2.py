"""C1 and C2 equal their equations."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.losses import C1Loss, C2Loss
from tests.losses.batches import Batch, batches
from tests.losses.compare import assert_matches
from tests.losses.pair_references import c1_reference, c2_reference

FLOATS = [torch.float64, torch.float32]


SETTINGS = settings(max_examples=50, deadline=None)


@pytest.mark.parametrize("dtype", FLOATS)
@SETTINGS
@given(batch=batches())
def test_c1_equals_equation(dtype: torch.dtype, batch: Batch) -> None:
    assert_matches(
        C1Loss(), lambda x, y: c1_reference(x, y, x, y, range(len(x))), batch.x, batch.y, dtype
    )


@pytest.mark.parametrize("dtype", FLOATS)
@SETTINGS
@given(batch=batches(), m_p=st.sampled_from([0.0, 0.2652]), m_n=st.sampled_from([0.3841, 1.7]))
def test_c2_equals_equation(dtype: torch.dtype, batch: Batch, m_p: float, m_n: float) -> None:
    assert_matches(
        C2Loss(m_p, m_n),
        lambda x, y: c2_reference(x, y, x, y, range(len(x)), m_p, m_n),
        batch.x,
        batch.y,
        dtype,
    )
