"""Class-wise pair losses equal their equations; properties of all pair losses."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dml.losses import C1Loss, C2Loss, ClassBalancedContrastiveLoss, ClassWiseMultiSimilarityLoss
from tests.losses.batches import Batch, batches
from tests.losses.compare import assert_matches

FLOATS = [torch.float64, torch.float32]


SETTINGS = settings(max_examples=50, deadline=None)


def similarity(x: Tensor, references: Tensor) -> Tensor:
    return F.normalize(x, dim=1) @ F.normalize(references, dim=1).T


def cwms_reference(
    x: Tensor,
    y: Tensor,
    references: Tensor,
    y_ref: Tensor,
    alpha: float,
    beta: float,
    delta: float,
    include_self: bool = True,
) -> Tensor:
    s = similarity(x, references)
    present = y.unique().tolist()
    positive = negative = torch.zeros((), dtype=x.dtype)
    for c in present:
        for other in y_ref.unique().tolist():
            block = s[y == c][:, y_ref == other]
            if c == other:
                terms = (-alpha * (block - delta)).exp()
                if not include_self:
                    terms = terms.masked_fill(torch.eye(len(terms), dtype=torch.bool), 0)
                positive = positive + torch.log1p(terms.mean() / 2)
            else:
                negative = negative + torch.log1p((beta * (block - delta)).exp().mean())
    return positive / (alpha * len(present)) + negative / (2 * beta * len(present))


def cbcont_reference(
    x: Tensor, y: Tensor, references: Tensor, y_ref: Tensor, m_p: float, m_n: float
) -> Tensor:
    d = 1 - similarity(x, references)
    present = y.unique().tolist()
    total = torch.zeros((), dtype=x.dtype)
    for c in present:
        for other in y_ref.unique().tolist():
            block = d[y == c][:, y_ref == other]
            hinge = block - m_p if c == other else m_n - block
            total = total + hinge.clamp_min(0).mean()
    return total / (2 * len(present))


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
        lambda x, y: cwms_reference(x, y, x, y, alpha, beta, delta, include_self),
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


@SETTINGS
@given(batch=batches(), seed=st.integers(0, 1000), size=st.integers(1, 8))
def test_references_take_the_place_of_the_batch(batch: Batch, seed: int, size: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    dimensions = batch.embedding_size
    references = torch.randn(size, dimensions, generator=generator, dtype=torch.float64)
    y_ref = torch.randint(0, batch.num_classes + 2, (size,), generator=generator)
    cases = [
        (
            ClassWiseMultiSimilarityLoss(2.0, 50.0, 0.5),
            lambda x, y, r, yr: cwms_reference(x, y, r, yr, 2.0, 50.0, 0.5),
        ),
        (
            ClassBalancedContrastiveLoss(0.02, 0.7),
            lambda x, y, r, yr: cbcont_reference(x, y, r, yr, 0.02, 0.7),
        ),
        (C1Loss(), lambda x, y, r, yr: c1_reference(x, y, r, yr, False)),
        (C2Loss(0.1, 0.9), lambda x, y, r, yr: c2_reference(x, y, r, yr, False, 0.1, 0.9)),
    ]
    for loss, reference in cases:
        x, r = batch.x.clone().requires_grad_(), references.clone().requires_grad_()
        expected = reference(x, batch.y, r, y_ref)
        actual = loss(x, batch.y, ref_emb=r, ref_labels=y_ref)
        torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-12)
        if expected.requires_grad:
            (gradient,) = torch.autograd.grad(expected, r, allow_unused=True)
            (mine,) = torch.autograd.grad(actual, r)
            if gradient is not None:
                torch.testing.assert_close(mine, gradient, rtol=1e-8, atol=1e-10)


PAIR_LOSSES = [
    ClassWiseMultiSimilarityLoss(2.0, 50.0, 0.5),
    ClassBalancedContrastiveLoss(0.02, 0.3),
    C1Loss(),
    C2Loss(),
]


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_pair_losses_refuse_wrong_inputs(loss: torch.nn.Module) -> None:
    x, y = torch.ones(2, 5), torch.tensor([0, 1])
    for name, arguments in [
        ("labels", {"labels": torch.tensor([0, -1])}),
        ("labels", {"labels": torch.tensor([0])}),
        ("embeddings", {"embeddings": x * math.nan}),
        ("indices_tuple", {"indices_tuple": (y, y, y)}),
        ("ref_emb", {"ref_emb": x}),
        ("ref_labels", {"ref_labels": y}),
        ("ref_emb", {"ref_emb": torch.ones(2, 4), "ref_labels": y}),
        ("ref_labels", {"ref_emb": x, "ref_labels": torch.tensor([0])}),
    ]:
        with pytest.raises(ValueError, match=name):
            loss(**({"embeddings": x, "labels": y} | arguments))


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_pair_losses_raise_half_precision_and_turn_autocast_off(loss: torch.nn.Module) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(9, 5).half(), torch.tensor([0, 1, 1, 1, 6, 6, 2, 0, 3])
    expected = loss(x.float(), y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(x, y)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_gradcheck(loss: torch.nn.Module) -> None:
    torch.manual_seed(0)
    x = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 0, 0, 2, 2, 5, 1])
    assert torch.autograd.gradcheck(lambda x: loss(x, y), (x,))


@pytest.mark.parametrize(
    ("loss", "name", "arguments"),
    [
        (ClassWiseMultiSimilarityLoss, "alpha", (0.0, 1.0, 0.5)),
        (ClassWiseMultiSimilarityLoss, "beta", (1.0, -1.0, 0.5)),
        (ClassWiseMultiSimilarityLoss, "delta", (1.0, 1.0, math.nan)),
        (ClassBalancedContrastiveLoss, "positive_margin", (math.nan, 0.0)),
        (ClassBalancedContrastiveLoss, "negative_margin", (0.0, math.inf)),
        (C1Loss, "epsilon", (math.nan,)),
        (C2Loss, "negative_margin", (0.0, math.nan)),
    ],
)
def test_refuses_wrong_hyperparameters(loss: type, name: str, arguments: tuple) -> None:
    with pytest.raises(ValueError, match=name):
        loss(*arguments)
