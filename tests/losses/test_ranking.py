"""Smooth-AP and the surrogate of Recall@k: equal to loops, to the metrics, and with miners."""

import pytest
import torch

from dml.losses import RecallAtKLoss, SmoothAPLoss, ranking
from dml.losses.metric_loss import pair_masks
from tests.losses import pair_references as reference
from tests.losses.all_losses import batch

CASES = {
    "smooth_ap": (SmoothAPLoss(), reference.smooth_ap_reference, (0.01,)),
    "without self": (SmoothAPLoss(0.01, False), reference.smooth_ap_reference, (0.01, False)),
    "recall": (
        RecallAtKLoss(),
        reference.recall_at_k_reference,
        (0.01, (1, 2, 4, 8, 16)),
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tile", [1, ranking.TILE])
def test_equals_loops_to_rounding(name, tile, monkeypatch):
    monkeypatch.setattr(ranking, "TILE", tile)
    torch.manual_seed(0)
    loss, equation, values = CASES[name]
    x, y = torch.randn(30, 8, dtype=torch.float64, requires_grad=True), torch.arange(30) % 7
    actual, expected = loss(x, y), equation(x, y, x, y, range(30), *values)
    results = [(one, *torch.autograd.grad(one, x)) for one in (actual, expected)]
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)


def test_mixes_of_similarities_equal_loops():
    """Similarities of mixes λ_P x̂_i + (1 − λ_P) x̂_j are sums over both images."""
    x, y = torch.randn(10, 8, dtype=torch.float64, requires_grad=True), torch.arange(10) % 4
    pairs = [(i, j) for i in range(10) for j in range(i + 1, 10) if y[i] == y[j]]
    torch.manual_seed(1)
    shares = torch.rand(len(pairs), 1).double()[:, 0]
    mixes = [[(1, i)] for i in range(10)]
    mixes += [[(a, i), (1 - a, j)] for a, (i, j) in zip(shares, pairs, strict=True)]
    s = reference.similarity(x, x)
    rows = [
        [sum(a * b * s[i, j] for a, i in one for b, j in two) for two in mixes] for one in mixes
    ]
    s = torch.stack([torch.stack(row) for row in rows])
    labels = torch.cat([y, y[[i for i, _ in pairs]]])
    expected = reference.recall_at_k_of(s, labels, labels, range(len(s)), 0.1, (1, 4))
    loss = RecallAtKLoss(0.1, (1, 4), similarity_mixup=True)
    torch.manual_seed(1)
    actual = loss(x, y)
    results = [(one, *torch.autograd.grad(one, x)) for one in (actual, expected)]
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="without references"):
        loss(x, y, ref_emb=x, ref_labels=y)


def test_small_temperatures_give_the_metrics():
    """A ranking by hand: a negative, a positive, a negative, a positive."""
    angles = torch.tensor([0.0, 0.1, 0.2, 0.4, 0.8], dtype=torch.float64)
    x, labels = torch.stack([angles.cos(), angles.sin()], dim=1), torch.tensor([0, 1, 0, 1, 0])
    query = (x[:1], labels[:1], None, x[1:], labels[1:])
    assert SmoothAPLoss(1e-5)(*query).item() == pytest.approx(1 - (1 / 2 + 2 / 4) / 2)
    for k, recall in [(1, 0), (2, 0.25), (3, 0.5), (4, 0.75)]:  # rank k counts half
        assert 1 - RecallAtKLoss(1e-5, [k], 1e-5)(*query).item() == pytest.approx(
            recall * 2 / min(k, 2)
        )


@pytest.mark.parametrize("name", CASES)
def test_only_the_pairs_of_a_miner_count(name):
    loss, _, _ = CASES[name]
    x, y = batch()
    positive, negative = pair_masks(y, y, torch.arange(len(y)))
    pulled, pushed = positive.nonzero(as_tuple=True), negative.nonzero(as_tuple=True)
    torch.testing.assert_close(loss(x, y, (*pulled, *pushed)), loss(x, y))
    assert loss(x, y, (*pulled, *(part[:0] for part in pushed))) < loss(x, y)


def test_at_least_one_k():
    with pytest.raises(ValueError, match="at least one k"):
        RecallAtKLoss(recall_at=[])
