"""Properties of all losses of pairs: references, self-pairs, refused arguments, precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dml.losses import (
    C1Loss,
    C2Loss,
    ClassBalancedContrastiveLoss,
    ClassWiseMultiSimilarityLoss,
    ProxyNCALoss,
    RecallAtKLoss,
    SmoothAPLoss,
)
from dml.losses.all_triplets import AllTripletsLoss
from dml.losses.generic import MultiSimilarityLoss
from dml.losses.metric_loss import PairLoss
from tests.losses import pair_references as reference
from tests.losses.batches import Batch, batches
from tests.losses.compare import assert_close, assert_matches

# name -> loss, and its equation as a function of (x, y, references, labels, self_of)
CASES: dict[str, tuple[PairLoss, Callable[..., Tensor]]] = {
    "cwms": (
        ClassWiseMultiSimilarityLoss(2.0, 50.0, 0.5),
        lambda *batch: reference.cwms_reference(*batch, 2.0, 50.0, 0.5),
    ),
    "cwms without self": (
        ClassWiseMultiSimilarityLoss(2.0, 50.0, 0.5, include_self=False),
        lambda *batch: reference.cwms_reference(*batch, 2.0, 50.0, 0.5, False),
    ),
    "cbcont": (
        ClassBalancedContrastiveLoss(0.02, 0.7),
        lambda *batch: reference.cbcont_reference(*batch[:4], 0.02, 0.7),
    ),
    "c1": (C1Loss(), reference.c1_reference),
    "c2": (C2Loss(0.0, 0.9), lambda *batch: reference.c2_reference(*batch, 0.0, 0.9)),
    "triplet": (AllTripletsLoss(0.2), lambda *batch: reference.triplet_reference(*batch, 0.2)),
    "ms": (
        MultiSimilarityLoss(2.0, 40.0, 0.5),
        lambda *batch: reference.multi_similarity_reference(*batch, 2.0, 40.0, 0.5),
    ),
    "smooth_ap": (
        SmoothAPLoss(0.1),
        lambda *batch: reference.smooth_ap_reference(*batch, 0.1),
    ),
    "recall_at_k": (
        RecallAtKLoss(0.1, (1, 3)),
        lambda *batch: reference.recall_at_k_reference(*batch, 0.1, (1, 3)),
    ),
}
PAIR_LOSSES = [loss for loss, _ in CASES.values()]
SETTINGS = settings(max_examples=25, deadline=None)


# name -> loss, its equation, and the values of the hyperparameters of both
EQUATIONS: dict[str, tuple[Callable[..., PairLoss], Callable[..., Tensor], list[list[Any]]]] = {
    "c1": (C1Loss, reference.c1_reference, []),
    "c2": (C2Loss, reference.c2_reference, [[0.0, 0.2652], [0.3841, 1.7]]),
    "cwms": (
        ClassWiseMultiSimilarityLoss,
        reference.cwms_reference,
        [[0.01, 2.0, 100.0], [0.01, 50.0, 100.0], [0.0, 0.5, 1.0], [False, True]],
    ),
    "cbcont": (
        ClassBalancedContrastiveLoss,
        lambda *batch: reference.cbcont_reference(*batch[:4], *batch[5:]),
        [[-0.2, 0.017, 2.0], [-0.2, 0.317, 2.1]],
    ),
    "smooth_ap": (SmoothAPLoss, reference.smooth_ap_reference, [[0.02, 1.0], [False, True]]),
    "recall_at_k": (
        lambda tau, ks, own: RecallAtKLoss(tau, ks, include_self=own),
        reference.recall_at_k_reference,
        [[0.02, 1.0], [(1,), (1, 2, 4)], [False, True]],
    ),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", EQUATIONS)
@settings(max_examples=40, deadline=None)
@given(batch=batches(), data=st.data())
def test_equals_the_equation(name, dtype, batch: Batch, data) -> None:
    make, equation, values = EQUATIONS[name]
    drawn = [data.draw(st.sampled_from(some)) for some in values]
    assert_matches(
        make(*drawn),
        lambda x, y: equation(x, y, x, y, range(len(x)), *drawn),
        batch.x,
        batch.y,
        dtype,
    )


@pytest.mark.parametrize("name", CASES)
@SETTINGS
@given(
    batch=batches(zero_rows=False),
    seed=st.integers(0, 1000),
    size=st.integers(1, 6),
    contained=st.sampled_from(["none", "unknown", "some", "all"]),
)
def test_equals_the_equation_with_references(name, batch: Batch, seed, size, contained) -> None:
    """Values and gradients; the references hold none, some or all of the batch."""
    loss, equation = CASES[name]
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(size, batch.embedding_size, generator=generator, dtype=torch.float64)
    y_rows = torch.randint(0, batch.num_classes + 2, (size,), generator=generator)
    self_of = None
    if contained in ("some", "all"):
        kept = len(batch.x) if contained == "all" else (len(batch.x) + 1) // 2
        rows, y_rows = torch.cat([rows, batch.x[:kept]]), torch.cat([y_rows, batch.y[:kept]])
        self_of = [size + i if i < kept else -1 for i in range(len(batch.x))]
    self_index = None if self_of is None else torch.tensor(self_of)
    if contained == "unknown":
        self_index = torch.full((len(batch.x),), -1)
    x, r = batch.x.clone().requires_grad_(), rows.clone().requires_grad_()
    value = loss(x, batch.y, ref_emb=r, ref_labels=y_rows, self_index=self_index)
    expected = equation(x, batch.y, r, y_rows, self_of)
    assert_close(value.detach(), expected.detach(), torch.float64, "value")
    gradients = torch.autograd.grad(value, (x, r))
    others = torch.autograd.grad(expected, (x, r), allow_unused=True)
    for point, mine, theirs in zip((x, r), gradients, others, strict=True):
        theirs = torch.zeros_like(point) if theirs is None else theirs
        scale = point.detach().norm(dim=1, keepdim=True)
        assert_close(mine * scale, theirs * scale, torch.float64, "gradient")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("margin", [0.0, 1.0, 2.0])
@SETTINGS
@given(labels=st.lists(st.integers(0, 2), min_size=8, max_size=8))
def test_triplets_at_the_margin_exactly_have_no_loss(margin, dtype, labels) -> None:
    """Of whole numbers on a line, many triplets are: r_ap + m = r_an."""
    assert_matches(
        AllTripletsLoss(margin),
        lambda x, y: reference.triplet_reference(x, y, x, y, range(8), margin),
        torch.arange(8.0)[:, None],
        torch.tensor(labels),
        dtype,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("scale", [0.3, 3.0])
@pytest.mark.parametrize("name", CASES)
def test_a_batch_as_its_own_references_is_the_batch(name, scale, dtype) -> None:
    """Self-pairs are known by position: neither rounding nor short vectors make them count."""
    torch.manual_seed(0)
    loss = CASES[name][0]
    x, y = scale * torch.randn(40, 5, dtype=dtype), torch.arange(40) % 8
    index = torch.randperm(40)
    references, y_ref = x[index], y[index]
    value = loss(x, y, ref_emb=references, ref_labels=y_ref, self_index=index.argsort())
    torch.testing.assert_close(value, loss(x, y))


@pytest.mark.parametrize(("loss", "scale"), [(C1Loss(), 0.5), (C2Loss(), 1.0)])
def test_without_self_index_a_batch_among_the_references_meets_itself(loss, scale) -> None:
    torch.manual_seed(0)
    x = scale * torch.nn.functional.normalize(torch.randn(40, 16))
    y = torch.arange(40) % 8
    assert not torch.isclose(loss(x, y, ref_emb=x, ref_labels=y), loss(x, y), rtol=1e-2)


@pytest.mark.parametrize("loss", PAIR_LOSSES, ids=CASES)
def test_the_wider_precision_of_batch_and_references_counts(loss: PairLoss) -> None:
    torch.manual_seed(0)
    x, r = torch.randn(5, 4), torch.randn(7, 4, dtype=torch.float64)
    y, z = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 1, 2, 2, 0, 3])
    expected = loss(x.double(), y, ref_emb=r, ref_labels=z)
    assert expected.dtype == torch.float64
    assert torch.equal(loss(x, y, ref_emb=r, ref_labels=z), expected)
    other = loss(r, z, ref_emb=x.double(), ref_labels=y)
    assert torch.equal(loss(r, z, ref_emb=x, ref_labels=y), other)


@pytest.mark.parametrize("scale", [0.2, 3.0])
@pytest.mark.parametrize("loss", [C1Loss(), C2Loss(0.0, 0.9)], ids=["c1", "c2"])
def test_references_are_clipped_as_the_batch(loss: PairLoss, scale: float) -> None:
    """Proxies are passed as they are, and may be longer than 1."""
    torch.manual_seed(0)
    x, r = torch.randn(5, 4), scale * torch.randn(7, 4)
    y, z = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 1, 2, 2, 0, 3])
    clipped = r / r.norm(dim=1, keepdim=True).clamp(min=1)
    assert torch.equal(clipped, r) == (scale < 1)
    torch.testing.assert_close(
        loss(x, y, ref_emb=r, ref_labels=z), loss(x, y, ref_emb=clipped, ref_labels=z)
    )


@pytest.mark.parametrize(("alpha", "has_constant"), [(0.01, True), (0.5, True), (1.0, False)])
def test_the_constant_of_cwms_is_near_its_first_sum(alpha: float, has_constant: bool) -> None:
    """Of any embeddings for a small alpha; without negatives, the first sum is the loss."""
    loss = ClassWiseMultiSimilarityLoss(alpha, 50.0, 0.5)
    torch.manual_seed(0)
    value = loss(torch.randn(6, 4, dtype=torch.float64), torch.zeros(6, dtype=torch.long))
    assert (loss.constant > 0) is has_constant
    if alpha == 0.01:
        assert float(value) == pytest.approx(loss.constant, rel=0.05)


def test_self_index_without_its_references_is_refused() -> None:
    x, y = torch.randn(3, 5), torch.arange(3)
    with pytest.raises(ValueError, match="self_index must hold one position for each embedding"):
        C1Loss()(x, y, ref_emb=x, ref_labels=y, self_index=torch.arange(4))
    for loss in (C1Loss(), ProxyNCALoss(3, 5)):
        with pytest.raises(ValueError, match="self_index must be None"):
            loss(x, y, self_index=torch.arange(3))


@pytest.mark.parametrize("loss", PAIR_LOSSES)
def test_pair_losses_refuse_wrong_inputs(loss: torch.nn.Module) -> None:
    x, y = torch.ones(2, 5), torch.tensor([0, 1])
    for name, arguments in [
        ("labels", {"labels": torch.tensor([0, -1])}),
        ("embeddings", {"embeddings": x * math.nan}),
        ("ref_emb", {"ref_emb": x}),
        ("ref_emb", {"ref_emb": torch.ones(2, 4), "ref_labels": y}),
        ("ref_labels", {"ref_emb": x, "ref_labels": torch.tensor([0])}),
    ]:
        with pytest.raises(ValueError, match=name):
            loss(**({"embeddings": x, "labels": y} | arguments))
