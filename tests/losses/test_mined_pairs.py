"""Losses with the tuples of miners, compared with loops and with the losses of PML."""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch import Tensor, nn
from torch.nn.functional import normalize

from dml.losses import (
    C1Loss,
    C2Loss,
    ClassBalancedContrastiveLoss,
    ClassWiseMultiSimilarityLoss,
    MeanFieldClassWiseMultiSimilarityLoss,
    MeanFieldContrastiveLoss,
    ProxyNCALoss,
)
from dml.losses.all_triplets import AllTripletsLoss
from dml.losses.generic import ContrastiveLoss, MultiSimilarityLoss, ProxyAnchorLoss
from dml.losses.mined_pairs import image_weights
from tests.losses.all_losses import LOSSES, batch, value_and_gradients

PAIRS = tuple(map(torch.tensor, ([0, 3, 4], [6, 4, 8], [0, 0, 3, 8], [1, 5, 7, 2])))
TRIPLETS = tuple(map(torch.tensor, ([0, 3, 0, 8], [6, 4, 6, 3], [1, 7, 5, 0])))
NONE = (torch.tensor([], dtype=torch.long),) * 3


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def c1(positive: Tensor, negative: Tensor, images: int) -> Tensor:
    return ((1 - 1e-5 - positive).relu().sum() + (negative - 0.5).relu().sum()) / images


def c2(positive: Tensor, negative: Tensor, images: int) -> Tensor:
    pull, push = (2 - 2 * positive).sqrt(), (0.9 - (2 - 2 * negative).sqrt()).relu()
    return pull[pull > 0].mean() + push.sum() / max(1, int((push > 0).sum()))


@pytest.mark.parametrize(("loss", "equation"), [(C1Loss(), c1), (C2Loss(0.0, 0.9), c2)])
@pytest.mark.parametrize("mined", [PAIRS, TRIPLETS])
@pytest.mark.parametrize("with_references", [False, True])
def test_only_the_pairs_of_the_tuple_count(loss, equation, mined, with_references) -> None:
    x, y = batch()
    x = normalize(x.double())
    references = normalize(torch.randn(9, 5).double()) if with_references else x
    a1, p, a2, n = lmu.convert_to_pairs(mined, y)
    listed = [set(zip(*(part.tolist() for part in two), strict=True)) for two in ((a1, p), (a2, n))]
    similarities = [torch.stack([x[i] @ references[j] for i, j in pairs]) for pairs in listed]
    given = {"ref_emb": references, "ref_labels": y} if with_references else {}
    actual = loss(x, y, mined, **given)
    torch.testing.assert_close(actual, equation(*similarities, len(x)))


def test_class_wise_means_divide_by_all_pairs() -> None:
    x, y = batch()
    s = normalize(x.double()) @ normalize(x.double()).T
    a1, p, a2, n = PAIRS
    positive, negative = torch.zeros(2, 9, 9, dtype=torch.bool)
    positive[a1, p], negative[a2, n] = True, True
    classes = y.unique()
    cwms, cbcont = 0.0, 0.0
    for c in classes:
        for d in classes:
            block = torch.meshgrid(
                (y == c).nonzero()[:, 0], (y == d).nonzero()[:, 0], indexing="ij"
            )
            if c == d:
                pull = (positive[block] * (-2 * (s[block] - 0.5)).exp()).mean() / 2
                cwms += pull.log1p() / 2
                cbcont += (positive[block] * (1 - s[block] - 0.02).relu()).mean() / 2
            else:
                push = (negative[block] * (50 * (s[block] - 0.5)).exp()).mean()
                cwms += push.log1p() / 100
                cbcont += (negative[block] * (0.7 - 1 + s[block]).relu()).mean() / 2
    for loss, expected in [
        (ClassWiseMultiSimilarityLoss(2, 50, 0.5), cwms),
        (ClassBalancedContrastiveLoss(0.02, 0.7), cbcont),
    ]:
        torch.testing.assert_close(loss(x.double(), y, PAIRS), expected / len(classes))


UNNORMALIZED = LpDistance(normalize_embeddings=False)
# ours, and the loss of PML that it equals
SAME: list[tuple[nn.Module, nn.Module]] = [
    (MultiSimilarityLoss(2.0, 50.0, 0.5), pml.MultiSimilarityLoss(2.0, 50.0, 0.5)),
    (AllTripletsLoss(0.2), pml.TripletMarginLoss(0.2, distance=UNNORMALIZED)),
    (ProxyAnchorLoss(7, 5), pml.ProxyAnchorLoss(7, 5)),
    (ProxyNCALoss(7, 5, 3.0), pml.ProxyNCALoss(7, 5, softmax_scale=3.0)),
]
MINED = {
    "nothing": None,
    "triplets": TRIPLETS,
    "pairs": PAIRS,
    "none": NONE,
    "TripletMarginMiner": miners.TripletMarginMiner(0.3),
    "MultiSimilarityMiner": miners.MultiSimilarityMiner(0.3),
    "BatchHardMiner": miners.BatchHardMiner(),
    "UniformHistogramMiner": miners.UniformHistogramMiner(),
    "DistanceWeightedMiner": miners.DistanceWeightedMiner(),
}


def without_repeats(pairs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    anchors, others = torch.stack(pairs).unique(dim=1)
    return anchors, others


@pytest.mark.parametrize("how", MINED)
@pytest.mark.parametrize(("ours", "theirs"), SAME, ids=lambda loss: type(loss).__name__)
def test_equals_the_same_loss_of_pml(ours: nn.Module, theirs: nn.Module, how: str) -> None:
    x, y = batch()
    x, ours, theirs = x.double(), ours.double(), theirs.double()
    theirs.load_state_dict(ours.state_dict(), strict=False)
    mined = MINED[how](x, y) if callable(MINED[how]) else MINED[how]
    if how == "UniformHistogramMiner":  # lists pairs several times: our loss counts each pair once
        mined = (*without_repeats(mined[:2]), *without_repeats(mined[2:]))
    expected = value_and_gradients(lambda x, y: theirs(x, y, mined), theirs, x, y)
    actual = value_and_gradients(lambda x, y: ours(x, y, mined), ours, x, y)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-9)


def test_mean_field_losses_weight_the_terms_of_the_images() -> None:
    x, y = batch()
    weight = image_weights(TRIPLETS, 9, x, only_anchors=False)
    contrastive = MeanFieldContrastiveLoss(7, 5, 0.1, 0.9)
    single = torch.stack([contrastive(x[i : i + 1], y[i : i + 1]) for i in range(9)])
    torch.testing.assert_close(contrastive(x, y, TRIPLETS), (weight * single).mean())

    cwms = MeanFieldClassWiseMultiSimilarityLoss(7, 5, 3, 7, 0.3)
    y0 = torch.zeros_like(y)  # one class: the second sum has a single term per class
    s = normalize(x) @ normalize(cwms.mean_fields.detach()).T
    pull = (weight * (-3 * (s[:, 0] - 0.3)).exp()).mean().log1p() / 3
    push = (weight[:, None] * (7 * (s[:, 1:] - 0.3)).exp()).mean(dim=0).log1p().sum() / 7
    torch.testing.assert_close(cwms(x, y0, TRIPLETS), pull + push)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (PAIRS[:2], "must be 3 tensors"),
        ((torch.tensor([0]), torch.tensor([1]), torch.tensor([9])), "positions in the 9"),
        ((torch.tensor([-1]), torch.tensor([1]), torch.tensor([2])), "positions in the 9"),
    ],
)
@pytest.mark.parametrize("name", ["c1", "proxy_nca"])
def test_other_tuples_are_refused(name: str, wrong, message: str) -> None:
    with pytest.raises(ValueError, match=f"indices_tuple .*{message}"):
        LOSSES[name]()(*batch(), wrong)


NAMED = tuple(torch.tensor(part) for part in ([0, 1], [1, 0], [0, 1], [5, 6]))


@pytest.mark.parametrize(
    "mined", [NAMED, (NAMED[0], NAMED[1], NAMED[3])], ids=["pairs", "triplets"]
)
@pytest.mark.parametrize("loss", [C1Loss(), C2Loss(), ContrastiveLoss(), MultiSimilarityLoss()])
def test_labels_are_not_needed_where_the_pairs_are_named(loss, mined):
    """The convention of pytorch-metric-learning."""
    torch.manual_seed(0)
    x, labels = torch.randn(8, 4), torch.arange(8) // 2
    assert torch.equal(loss(x, None, mined), loss(x, labels, mined))
    assert torch.equal(loss(x, indices_tuple=mined), loss(x, labels, mined))
    references = torch.randn(7, 4)
    with_references = loss(x, labels, mined, ref_emb=references, ref_labels=torch.arange(7))
    assert torch.equal(loss(x, None, mined, ref_emb=references), with_references)
    with pytest.raises(ValueError, match="labels must be given, or indices_tuple"):
        loss(x)


def test_class_wise_losses_need_labels():
    with pytest.raises(ValueError, match=r"labels must be given$"):
        ClassWiseMultiSimilarityLoss(1, 10, 0.5)(torch.randn(8, 4), None, NAMED)
