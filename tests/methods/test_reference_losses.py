"""Pair losses between a batch and references, without normalization."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning.distances import DotProductSimilarity, LpDistance
from pytorch_metric_learning.reducers import MeanReducer
from pytorch_metric_learning.regularizers import LpRegularizer

from dml.config.check import check
from dml.core.errors import UserError
from dml.losses import C1Loss, C2Loss, ProxyNCALoss, baselines
from dml.losses.distances import clip_to_ball
from dml.methods.reference_losses import prepare_for_references
from dml.runs.build import Builder


def data(seed, classes=4, batch=9, refs=14, scale=0.5):
    generator = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(batch, 5, generator=generator, dtype=torch.float64)
    r = scale * torch.randn(refs, 5, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (batch,), generator=generator)
    z = torch.randint(classes, (refs,), generator=generator)
    return x.requires_grad_(), y, r.requires_grad_(), z


def test_multi_similarity_takes_inner_products_of_clipped_vectors():
    x, y, r, z = data(2, scale=0.4)
    x, r = clip_to_ball(x.detach()), clip_to_ball(r.detach())
    loss = prepare_for_references(pml.MultiSimilarityLoss(2.0, 40.0, 0.5), None, 5, "ccp")
    total = 0.0
    for i in range(9):
        s = [float(x[i] @ r[j]) for j in range(14)]
        p = sum(torch.tensor(-2.0 * (s[j] - 0.5)).exp() for j in range(14) if z[j] == y[i])
        n = sum(torch.tensor(40.0 * (s[j] - 0.5)).exp() for j in range(14) if z[j] != y[i])
        total += float(torch.log1p(torch.as_tensor(p)) / 2 + torch.log1p(torch.as_tensor(n)) / 40)
    assert (x.norm(dim=1) < 0.9).any()  # otherwise cosines would give the same
    assert float(loss(x, y, None, r, z)) == pytest.approx(total / 9, rel=1e-5)


@pytest.mark.parametrize("make", [C1Loss, C2Loss, pml.ContrastiveLoss, pml.NTXentLoss])
def test_losses_of_pairs_are_taken(make):
    loss = make()
    assert prepare_for_references(loss, None, 5, "xbm") is loss


TRIPLETS = {
    "as it is": {},
    "smooth": {"smooth_loss": True},
    "few triplets": {"triplets_per_anchor": 2},
    "p = 1": {"distance": LpDistance(p=1)},
    "squared": {"distance": LpDistance(power=2)},
    "inner product": {"distance": DotProductSimilarity()},
    "mean": {"reducer": MeanReducer()},
    "regularizer": {"embedding_regularizer": LpRegularizer()},
}


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("options", TRIPLETS.values(), ids=TRIPLETS)
def test_triplet_losses_with_any_option_keep_their_value(options, own):
    """The form without a list of triplets replaces only the loss that it equals."""
    x, y, r, z = data(4)
    kind = baselines.TripletMarginLoss if own else pml.TripletMarginLoss
    loss = prepare_for_references(kind(0.2, **copy.deepcopy(options)), None, 5, "ccp")
    plain = pml.TripletMarginLoss(0.2, **copy.deepcopy(options))
    plain.distance.normalize_embeddings = False
    values = []
    for some in (loss, plain):
        torch.manual_seed(0)
        np.random.seed(0)
        values.append(some(x, y, ref_emb=r, ref_labels=z))
    assert values[1] > 0
    torch.testing.assert_close(*values)


@pytest.mark.parametrize("make", [pml.TripletMarginLoss, baselines.TripletMarginLoss])
def test_swapped_anchors_are_refused_as_the_library_has_them_not_for_references(make):
    with pytest.raises(UserError, match="loss: method 'ccp' compares a batch with references"):
        prepare_for_references(make(swap=True), None, 5, "ccp")


def test_a_check_of_a_loss_draws_no_random_numbers():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    prepare_for_references(pml.TripletMarginLoss(triplets_per_anchor=1), None, 5, "ccp")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("make", [ProxyNCALoss, pml.ArcFaceLoss, pml.ProxyAnchorLoss])
def test_losses_with_proxies_of_their_own_are_refused_in_one_line(make):
    with pytest.raises(UserError, match=r"loss: method 'ccp' compares .* use c1, c2") as caught:
        prepare_for_references(make(3, 5), None, 5, "ccp")
    assert len(str(caught.value).splitlines()) == 1


def test_a_miner_is_refused(composed):
    config = check(composed("method=ccp", "loss=ms_miner"))
    with pytest.raises(UserError, match=r"loss\.miner: method 'ccp'"):
        Builder(config).method(3, 8)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["protocol=mlrc_ccp", "loss=ms"], "inner product"),
        (["protocol=holdout", "loss=ms_miner"], "inner product"),
        (["protocol=mlrc_ccp", "loss=ms", "method=imix"], "cosine"),
        (["protocol=mlrc", "loss=ms"], "cosine"),
    ],
)
def test_plain_pair_losses_compare_what_the_clipped_normalizer_leaves(
    composed, overrides, expected
):
    method = Builder(check(composed(*overrides))).method(2, 2)
    x = torch.tensor([[0.5, 0.0], [0.5, 0.0], [0.0, 0.5], [0.0, 0.5]])
    y = torch.tensor([0, 0, 1, 1])
    positive, negative = {"inner product": (0.25, 0.0), "cosine": (1.0, 0.0)}[expected]
    loss = method.loss
    pull = math.log1p(math.exp(-loss.alpha * (positive - loss.base))) / loss.alpha
    push = math.log1p(2 * math.exp(loss.beta * (negative - loss.base))) / loss.beta
    assert float(loss(x, y)) == pytest.approx(pull + push, rel=1e-5)
    if method.miner is not None:
        assert not method.miner.distance.normalize_embeddings


def test_classification_losses_keep_their_own_similarity(composed):
    config = check(composed("protocol=mlrc_ccp", "loss=proxy_anchor"))
    assert Builder(config).method(2, 8).loss.distance.normalize_embeddings
