"""Cross-batch memory with a miner: pytorch-metric-learning's CrossBatchMemory, and refusals."""

from __future__ import annotations

import pytest
import torch
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners

from dml.core.errors import UserError
from dml.losses import C2Loss
from dml.losses.all_triplets import AllTripletsLoss
from dml.methods.cross_batch import CrossBatchMemory
from dml.methods.mining import drop_self_pairs
from tests.methods.tiny_training import TinyEmbedder

# Classes differ in size. The first memory has one class, so that no negative can be mined; so
# has the sixth batch, whose negatives are in the memory.
BATCHES = torch.tensor(
    [
        [1, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 1, 2],
        [0, 1, 1, 2, 2, 2],
        [3, 3, 0, 1, 2, 0],
        [0, 0, 0, 1, 1, 3],
        [2, 2, 2, 2, 2, 2],
        [0, 1, 2, 3, 3, 3],
        [1, 1, 0, 0, 2, 2],
        [0, 0, 0, 0, 0, 1],
        [3, 2, 1, 0, 0, 1],
    ]
)
SIZE, MEMORY = 6, 3  # images in a batch, batches in the memory
LOSSES = {
    "contrastive": pml.ContrastiveLoss,
    "ms": pml.MultiSimilarityLoss,
    "triplet": lambda: pml.TripletMarginLoss(margin=0.3),
    "ntxent": pml.NTXentLoss,
    "margin": pml.MarginLoss,
    "circle": pml.CircleLoss,
    "c2": C2Loss,
    "all triplets": lambda: AllTripletsLoss(margin=0.3),
}
MINERS = {
    "multi-similarity": lambda: miners.MultiSimilarityMiner(epsilon=0.1),
    "pair margin": lambda: miners.PairMarginMiner(pos_margin=0.3, neg_margin=0.9),
    "pairs in no range": lambda: miners.PairMarginMiner(pos_margin=3, neg_margin=-1),
    "triplet margin": lambda: miners.TripletMarginMiner(margin=0.3),
    "semi-hard": lambda: miners.TripletMarginMiner(margin=0.3, type_of_triplets="semihard"),
    "batch hard": miners.BatchHardMiner,
    "batch easy hard": miners.BatchEasyHardMiner,
    "angular": lambda: miners.AngularMiner(angle=20),
    "hard pairs": lambda: miners.HDCMiner(filter_percentage=0.3),
    "distance weighted": miners.DistanceWeightedMiner,
    "uniform histogram": lambda: miners.UniformHistogramMiner(num_bins=10, pos_per_bin=5),
}


class AnyCrossBatchMemory(pml.CrossBatchMemory):
    """Accepts losses whose names the library does not know."""

    @classmethod
    def check_loss_support(cls, loss_name):
        """Refuses nothing."""


def expected_loss(loss, miner):
    """The loss of mined pairs of the batch plus that of the library's memory."""
    memory = AnyCrossBatchMemory(loss, 3, memory_size=MEMORY * SIZE, miner=miner)

    def value(x, labels):
        return loss(x, labels, miner(x, labels)) + memory(x, labels)

    return value


def train(value):
    """Losses and gradients of ten steps of a network in float64."""
    torch.manual_seed(0)
    embedder = TinyEmbedder(scale=30.0).double()  # all vectors have length 1
    optimizer = torch.optim.SGD(embedder.parameters(), lr=0.002, momentum=0.9)
    losses, gradients = [], []
    for step, labels in enumerate(BATCHES):
        torch.manual_seed(step)  # of the images, and of miners that draw
        images = torch.randn(SIZE, 6, dtype=torch.float64) + labels[:, None] % 3
        loss = value(embedder, images, labels)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.detach())
        gradients.append(torch.cat([p.grad.flatten() for p in embedder.parameters()]))
        optimizer.step()
    return torch.stack(losses), torch.stack(gradients)


def train_here(loss, miner, **options):
    options = {"memory_batches": MEMORY, "start_after": 0, **options}
    method = CrossBatchMemory(loss, miner, 3, **options).double().train()
    return train(lambda *batch: method(*batch)[0])


@pytest.mark.parametrize("miner", MINERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_mined_pairs_of_batch_and_memory_are_those_of_the_library(loss, miner):
    expected = expected_loss(LOSSES[loss](), MINERS[miner]())
    losses, gradients = train(lambda embedder, x, y: expected(embedder(x), y))
    found, found_gradients = train_here(LOSSES[loss](), MINERS[miner]())
    torch.testing.assert_close(found, losses, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(found_gradients, gradients, rtol=1e-7, atol=1e-9)
    if miner == "pairs in no range":
        assert not gradients.any()
    else:
        assert gradients[-1].any()


@pytest.mark.parametrize("scale", [0.3, 0.6])
def test_loss_and_miner_compare_clipped_vectors_as_they_are(scale):
    """As in the protocols of ccp: lengths below 1 count, in what is mined as well."""
    torch.manual_seed(0)
    embedder = TinyEmbedder(scale=scale).double()
    labels = torch.arange(12) % 3
    x = embedder(torch.randn(12, 6, dtype=torch.float64)).detach().requires_grad_()
    assert x.norm(dim=1).max() < 1
    method = CrossBatchMemory(
        *(pml.ContrastiveLoss(), miners.PairMarginMiner(0.2, 0.5), 3),
        memory_batches=1,
        start_after=0,
    ).train()
    distance_BB = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    others_BB = ~torch.eye(12, dtype=torch.bool)
    same_BB = (labels[:, None] == labels) & others_BB
    pull = distance_BB[same_BB & (distance_BB > 0.2)]
    push = 1 - distance_BB[~same_BB & others_BB & (distance_BB < 0.5)]
    expected = 2 * (pull.mean() + push.mean())
    torch.testing.assert_close(method(lambda v: v, x, labels)[0], expected)


class NoReferences(torch.nn.Module):
    """A loss that takes mined pairs, of a batch alone."""

    def forward(self, embeddings, labels, indices_tuple=None):
        return embeddings.sum()


class NoTuple(torch.nn.Module):
    """A loss that takes references, but no mined pairs."""

    def forward(self, embeddings, labels, *, ref_emb, ref_labels):
        return embeddings.sum()


def pairs_of_the_batch(embeddings, labels):
    return miners.BatchHardMiner()(embeddings, labels)


def two_tensors(embeddings, labels, ref_emb=None, ref_labels=None):
    return labels, labels


@pytest.mark.parametrize(
    ("loss", "miner", "message"),
    [
        (pml.ContrastiveLoss, pairs_of_the_batch, r"loss\.miner: .*function cannot .*use a miner"),
        (pml.ContrastiveLoss, two_tensors, r"loss\.miner: .*must return 3 tensors .*returned 2"),
        (
            *(pml.ContrastiveLoss, miners.EmbeddingsAlreadyPackagedAsTriplets()),
            r"loss\.miner: .*EmbeddingsAlreadyPackagedAsTriplets cannot",
        ),
        (NoReferences, miners.BatchHardMiner(), "loss: .*NoReferences cannot .*use c1, c2, ms"),
        (NoTuple, miners.BatchHardMiner(), "loss: .*NoTuple cannot .*use c1, c2, ms"),
        (pml.FastAPLoss, miners.BatchHardMiner(), "loss: .*FastAPLoss cannot .*use c1, c2, ms"),
    ],
)
def test_what_mines_or_compares_no_references_is_refused_in_one_line(loss, miner, message):
    with pytest.raises(UserError, match=message) as caught:
        CrossBatchMemory(loss(), miner, 3)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("nothing", [None, (), []])
@pytest.mark.parametrize("loss", [pml.MultiSimilarityLoss, C2Loss, AllTripletsLoss])
def test_a_miner_that_returns_nothing_means_no_pairs(loss, nothing):
    losses, gradients = train_here(loss(), lambda *batch: nothing)
    assert not losses.any()
    assert not gradients.any()


def test_pairs_with_their_copies_count_where_it_is_asked_for():
    def all_pairs(x, labels, ref_emb=None, ref_labels=None):
        same = labels[:, None] == (labels if ref_labels is None else ref_labels)
        return *same.nonzero(as_tuple=True), *(~same).nonzero(as_tuple=True)

    labels, x = torch.arange(6) % 2, torch.randn(6, 3, requires_grad=True)
    options = {"memory_batches": 1, "start_after": 0}
    excluded = CrossBatchMemory(pml.MultiSimilarityLoss(), all_pairs, 3, **options)
    included = CrossBatchMemory(
        pml.MultiSimilarityLoss(), all_pairs, 3, exclude_self_pairs=False, **options
    )
    loss = included.loss
    in_batch = loss(x, labels, all_pairs(x, labels))
    with_copies = loss(x, labels, all_pairs(x, labels), x.detach(), labels.clone())
    others = drop_self_pairs(all_pairs(x, labels), torch.arange(6))
    without_copies = loss(x, labels, others, x.detach(), labels.clone())
    assert with_copies > without_copies
    torch.testing.assert_close(included(lambda v: v, x, labels)[0], in_batch + with_copies)
    torch.testing.assert_close(excluded(lambda v: v, x, labels)[0], in_batch + without_copies)


@pytest.mark.parametrize("width", [3, 4])
def test_pairs_of_a_copy_that_the_memory_does_not_hold_stay(width):
    mined = tuple(torch.tensor(row) for row in ([0, 1, 2], [4, 0, 5], [0, 1, 2], [1, 2, 3]))
    mined = mined if width == 4 else (mined[0], mined[1], mined[3])
    kept = drop_self_pairs(mined, torch.tensor([4, -1, -1]))
    assert [part.tolist() for part in kept[:2]] == [[1, 2], [0, 5]]
    negatives = [1, 2, 3] if width == 4 else [2, 3]
    assert kept[-1].tolist() == negatives


def test_the_memory_waits_for_its_step_with_a_miner_too():
    losses, _ = train_here(pml.ContrastiveLoss(), miners.BatchHardMiner(), start_after=4)
    miner, loss = miners.BatchHardMiner(), pml.ContrastiveLoss()
    alone, _ = train(lambda embedder, x, y: loss(embedder(x), y, miner(embedder(x), y)))
    torch.testing.assert_close(losses[:4], alone[:4])
    assert losses[4] > alone[4]
