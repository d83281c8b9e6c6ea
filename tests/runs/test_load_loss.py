"""The loss of a run: its weights, its classes, and runs that have none."""

import pytest
import torch

import dml
from dml.core.errors import UserError
from dml.losses import ProxyNCAPlusPlusLoss
from dml.runs.load_loss import TrainedLoss
from dml.training.checkpoint_files import read_checkpoint


@pytest.mark.parametrize("words", [("method=plain",), ("method=metrix",)], ids=["plain", "metrix"])
def test_probabilities_of_the_classes_of_the_training(run_tiny, words):
    _, folder = run_tiny("loss=proxy_nca", "protocol=holdout", "protocol.epochs=1", *words)
    embedder, _, loss = dml.load(folder, loss=True)
    (weights,) = folder.glob("checkpoints/*/best.pt")
    stored = read_checkpoint(weights)["method"]
    torch.testing.assert_close(loss.loss.proxies.detach(), stored["loss.proxies"])
    probabilities = loss.probabilities(torch.randn(3, embedder.embedding_size))
    assert probabilities.shape == (3, len(loss.classes))
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(3))


def test_what_holds_no_loss_or_no_logits(run_tiny, tmp_path):
    _, folder = run_tiny("loss=contrastive", "protocol.epochs=1")
    dml.export(folder, tmp_path / "net")
    for source in (tmp_path / "net", "timm:resnet18"):
        with pytest.raises(UserError, match=r"load: .* holds no loss; loss=True takes the run"):
            dml.load(source, loss=True)
    embedder, _, loss = dml.load(folder, loss=True)
    with pytest.raises(UserError, match="loss: ContrastiveLoss has no logits of classes"):
        loss.probabilities(torch.randn(3, embedder.embedding_size))


@pytest.mark.parametrize(
    "words",
    [
        ("loss=contrastive", "method=xbm"),
        ("loss=c1", "method=ccp"),
        ("loss=mfcwms", "method=plain"),
    ],
    ids=["xbm", "ccp", "mfcwms"],
)
def test_the_loss_of_every_method_has_the_weights_of_the_training(run_tiny, words):
    _, folder = run_tiny("protocol.epochs=1", *words)
    _, _, loss = dml.load(folder, loss=True)
    weights = sorted(folder.glob("checkpoints/*/best.pt"))[0]
    stored = read_checkpoint(weights)["method"]
    state = loss.loss.state_dict()
    assert state.keys() <= {name.removeprefix("loss.") for name in stored}
    for name, value in state.items():
        torch.testing.assert_close(value, stored[f"loss.{name}"])


def test_the_accuracy_counts_names_of_the_largest_logits():
    """By hand: two of four are right, one has another class, one a class without a proxy."""
    loss = ProxyNCAPlusPlusLoss(3, 3)
    with torch.no_grad():
        loss.proxies.copy_(torch.eye(3))
    trained = TrainedLoss(loss, ["wren", "auk", "kite"])  # not in alphabetical order
    embeddings = torch.eye(3)[[0, 1, 2, 0]]
    assert trained.accuracy(embeddings, ["wren", "auk", "auk", "owl"]) == 2 / 4
