"""Properties of generic forms on mixed examples (metrix, §3.6)."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.losses.generic import forms

FORMS = [
    forms.EuclideanContrastive(1.2, 0.1),
    forms.CosineContrastive(0.1),
    forms.MultiSimilarity(3, 7, 0.2),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_one_to_one_mixes_at_both_ends_add_up_to_the_clean_loss(form):
    torch.manual_seed(0)
    pos, neg = torch.rand(3, 4, dtype=torch.float64), torch.rand(3, 4, dtype=torch.float64)
    there = torch.ones(3, 4, dtype=torch.bool)
    one, zero = torch.ones_like(pos), torch.zeros_like(pos)
    clean = form.loss(
        torch.cat([pos, neg], 1), torch.cat([one, zero], 1), torch.cat([there, there], 1)
    )
    ends = form.loss(pos, one, there) + form.loss(neg, zero, there)  # λ = 1 is p, λ = 0 is n
    torch.testing.assert_close(ends, clean)
    assert clean.abs() > 0.1


@given(
    beta=st.floats(0.1, 50),
    gamma=st.floats(0.1, 50),
    margin=st.floats(-0.5, 0.9),
    lam=st.floats(0.02, 0.98),
)
@settings(max_examples=30, deadline=None)
def test_a_single_mix_turns_from_positive_to_negative_where_the_paper_says(
    beta, gamma, margin, lam
):
    form = forms.MultiSimilarity(beta, gamma, margin)
    turning = margin + math.log(lam / (1 - lam)) / (beta + gamma)
    y, there = torch.tensor([[lam]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool)

    def derivative(s):
        s = torch.tensor([[s]], dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(form.loss(s, y, there), s)
        return slope.item()

    assert derivative(turning - 1e-3) < 0 < derivative(turning + 1e-3)
    assert abs(derivative(turning)) < 1e-9
