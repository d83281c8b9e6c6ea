"""Cross-batch memory: its content, its start, and resumed runs."""

from __future__ import annotations

import copy

import pytest
import torch
from pytorch_metric_learning import losses as pml

from dml.losses import C1Loss, C2Loss
from dml.methods.cross_batch import CrossBatchMemory
from tests.methods.tiny_training import TinyEmbedder, images_of

MAKERS = [
    *(C1Loss, C2Loss, pml.ContrastiveLoss, pml.TripletMarginLoss),
    *(pml.MultiSimilarityLoss, pml.NTXentLoss, pml.MarginLoss),
]
BATCHES = [torch.randint(3, (4,), generator=torch.Generator().manual_seed(i)) for i in range(9)]


def method_with(**options):
    options = {"memory_batches": 3, "start_after": 0, **options}
    return CrossBatchMemory(C2Loss(), None, 3, **options).train()


def steps(method, embedder, batches, optimizer=None):
    """The losses and embeddings of some steps."""
    losses, embedded = [], []
    for labels in batches:
        images = images_of(labels)
        embedded.append(embedder(images).detach())
        loss, _ = method(embedder, images, labels)
        losses.append(loss.item())
        if optimizer:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return losses, embedded


def test_batch_loss_plus_loss_against_the_last_batches():
    torch.manual_seed(0)
    embedder = TinyEmbedder()
    optimizer = torch.optim.SGD(embedder.parameters(), lr=0.1)
    losses, embedded = steps(method_with(), embedder, BATCHES, optimizer)
    loss = C2Loss()
    for t, value in enumerate(losses):
        last = slice(max(0, t - 2), t + 1)
        among = loss(embedded[t], BATCHES[t])
        memory = torch.cat(embedded[last]), torch.cat(BATCHES[last])
        # the current batch comes last here
        own = torch.arange(4) + len(memory[0]) - 4
        against = loss(embedded[t], BATCHES[t], None, *memory, self_index=own)
        assert value == pytest.approx(float(among + against), rel=1e-6)
        assert against > 0


@pytest.mark.parametrize(("wait", "first"), [(False, 4), (True, 7)])
def test_memory_counts_from_its_step_on_and_is_full_by_then(wait, first):
    torch.manual_seed(0)
    embedder = TinyEmbedder()
    method = method_with(start_after=4, wait_until_full=wait)
    losses, embedded = steps(method, embedder, BATCHES)
    alone = [float(C2Loss()(x, y)) for x, y in zip(embedded, BATCHES, strict=True)]
    with_memory = [value != one for value, one in zip(losses, alone, strict=True)]
    assert with_memory == [t >= first for t in range(9)]
    assert len(method.memory()[1]) == 12


@pytest.mark.parametrize("scale", [0.3, 30.0])
@pytest.mark.parametrize("make", MAKERS)
def test_an_embedding_is_not_compared_with_itself(make, scale):
    """A memory of this batch alone doubles the loss of the batch, whatever the vectors' length."""
    torch.manual_seed(0)
    embedder = TinyEmbedder(scale=scale)
    labels = torch.arange(12) % 4
    method = CrossBatchMemory(make(), None, 3, memory_batches=1, start_after=0).train()
    value, _ = method(embedder, images_of(labels), labels)
    expected = 2 * method.loss(embedder(images_of(labels)), labels)
    assert expected > 0
    torch.testing.assert_close(value, expected)


def test_pairs_with_their_copies_count_where_it_is_asked_for():
    """As in the code of the authors of ccp: an embedding's copy is one of its positives."""
    torch.manual_seed(0)
    embedder, labels = TinyEmbedder(), torch.arange(12) % 4
    values = []
    for excluded in (True, False):
        options = {"memory_batches": 1, "start_after": 0, "exclude_self_pairs": excluded}
        method = CrossBatchMemory(pml.MultiSimilarityLoss(), None, 3, **options).train()
        values.append(method(embedder, images_of(labels), labels)[0])
    x = embedder(images_of(labels))
    copies = method.loss(x, labels, ref_emb=x.detach().clone(), ref_labels=labels.clone())
    torch.testing.assert_close(values[1], method.loss(x, labels) + copies)
    assert values[1] > values[0]


def test_gradients_reach_the_batch_alone():
    torch.manual_seed(0)
    embedder = TinyEmbedder()
    method = method_with()
    steps(method, embedder, BATCHES[:2])
    assert not method.memory()[0].requires_grad
    labels = BATCHES[2]
    method(embedder, images_of(labels), labels)[0].backward()
    assert embedder.head.weight.grad.any()
    assert not list(method.parameters())


@pytest.mark.parametrize("cut", [0, 2, 5])  # empty, half full, full
def test_resumed_memory_goes_on_bit_by_bit(cut, tmp_path):
    torch.manual_seed(0)
    embedder, method = TinyEmbedder(), method_with()
    optimizer = torch.optim.SGD(embedder.parameters(), lr=0.1)
    steps(method, embedder, BATCHES[:cut], optimizer)
    torch.save(method.state_dict(), tmp_path / "state.pt")
    twin, resumed = copy.deepcopy(embedder), method_with()
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    other = torch.optim.SGD(twin.parameters(), lr=0.1)
    assert (
        steps(method, embedder, BATCHES[cut:], optimizer)[0]
        == steps(resumed, twin, BATCHES[cut:], other)[0]
    )
    assert torch.equal(method.memory()[0], resumed.memory()[0])
