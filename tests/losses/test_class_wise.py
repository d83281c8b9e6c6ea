"""Class-wise pair losses equal their equations."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.losses import ClassBalancedContrastiveLoss, ClassWiseMultiSimilarityLoss
from tests.losses.batches import Batch, batches
from tests.losses.compare import assert_matches
from tests.losses.pair_references import cbcont_reference, cwms_reference

FLOATS = [torch.float64, torch.float32]


SETTINGS = settings(max_examples=50, deadline=None)


@pytest.mark.parametrize("dtype", FLOATS)
@SETTINGS
@given(
    batch=batches(),
    alpha=st.sampled_from([0.01, 2.0, 100.0]),
    beta=st.sampled_from([0.01, 50.0, 100.0]),
    delta=st.sampled_from([0.0, 0.5, 1.0]),
    include_self=st.booleans(),
)
def test_cwms_equals_equation(
    dtype: torch.dtype, batch: Batch, alpha: float, beta: float, delta: float, include_self: bool
) -> None:
    loss = ClassWiseMultiSimilarityLoss(alpha, beta, delta, include_self)
    assert_matches(
        loss,
        lambda x, y: cwms_reference(x, y, x, y, range(len(x)), alpha, beta, delta, include_self),
        batch.x,
        batch.y,
        dtype,
    )


@pytest.mark.parametrize("dtype", FLOATS)
@SETTINGS
@given(
    batch=batches(),
    m_p=st.sampled_from([-0.2, 0.017, 2.0]),
    m_n=st.sampled_from([-0.2, 0.317, 2.1]),
)
def test_cbcont_equals_equation(dtype: torch.dtype, batch: Batch, m_p: float, m_n: float) -> None:
    loss = ClassBalancedContrastiveLoss(m_p, m_n)
    assert_matches(
        loss, lambda x, y: cbcont_reference(x, y, x, y, m_p, m_n), batch.x, batch.y, dtype
    )
