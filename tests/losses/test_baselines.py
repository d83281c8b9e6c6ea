"""The baselines equal the losses of pytorch-metric-learning: values, gradients, state, options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from pytorch_metric_learning import distances, miners, reducers, regularizers
from pytorch_metric_learning import losses as pml
from torch import Tensor, nn

from dml.losses import baselines
from dml.losses.baselines.terms import VectorizedLoss
from tests.losses.batches import Batch, batches

CLASSES, SIZE = 7, 8
PAIRS: dict[str, dict[str, Any]] = {
    "MultiSimilarityLoss": {"alpha": 3, "beta": 20, "base": 0.4},
    "SupConLoss": {"temperature": 0.2},
    "CircleLoss": {"m": 0.3, "gamma": 12},
    "ContrastiveLoss": {"pos_margin": 0.1, "neg_margin": 1.3},
    "SignalToNoiseRatioContrastiveLoss": {"pos_margin": 0.2, "neg_margin": 2.1},
    "NTXentLoss": {"temperature": 0.3},
    "TripletMarginLoss": {"margin": 0.2},
    "MarginLoss": {"margin": 0.3, "nu": 0.2, "beta": 1.1, "learn_beta": True},
    "FastAPLoss": {"num_bins": 7},
    "NPairsLoss": {},
}
WITH_CLASSES: dict[str, dict[str, Any]] = {
    "ArcFaceLoss": {"margin": 20, "scale": 12},
    "CosFaceLoss": {"margin": 0.3, "scale": 12},
    "NormalizedSoftmaxLoss": {"temperature": 0.1},
    "ProxyAnchorLoss": {"margin": 0.2, "alpha": 12},
    "SoftTripleLoss": {"centers_per_class": 3, "la": 9, "gamma": 0.3, "margin": 0.05},
}
OF_TWO_SETS = [
    name for name in PAIRS if name not in ("FastAPLoss", "NPairsLoss")
]  # take references
SETTINGS = settings(max_examples=30, deadline=None)


def make(name: str, size: int = SIZE, **options: Any) -> tuple[nn.Module, nn.Module]:
    """Returns our loss and that of the library, with equal parameters."""
    arguments = {**PAIRS, **WITH_CLASSES}[name] | options
    if name in WITH_CLASSES:
        arguments = {"num_classes": CLASSES, "embedding_size": size} | arguments
    ours, theirs = getattr(baselines, name)(**arguments), getattr(pml, name)(**arguments)
    ours.load_state_dict(theirs.state_dict())
    return ours.double(), theirs.double()


def evaluate(loss: nn.Module, x: Tensor, *others: Any) -> tuple[Tensor, list[Tensor]]:
    x = x.detach().clone().requires_grad_()
    value = loss(x, *others)
    inputs = [x, *loss.parameters()]
    gradients = torch.autograd.grad(value, inputs, allow_unused=True)
    pairs = zip(gradients, inputs, strict=True)
    return value.detach(), [torch.zeros_like(at) if g is None else g for g, at in pairs]


def assert_equal(losses: tuple[nn.Module, nn.Module], x: Tensor, *others: Any) -> None:
    """Compares values to 1e-12 and gradients to 1e-10, of what is larger than 1 relatively."""
    (value, gradients), (expected, others_) = (evaluate(loss, x, *others) for loss in losses)
    scale = max(1, expected.abs().max().item())
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-12 * scale)
    for mine, theirs in zip(gradients, others_, strict=True):
        assert mine.isfinite().all()
        scale = max(1, theirs.abs().max().item())
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10 * scale)


def draw_batch(labels: list[int] | Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    labels = torch.as_tensor(labels)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(labels), SIZE, generator=generator, dtype=torch.float64), labels


LABELS = {
    "balanced": [0, 1, 2, 3] * 3,
    "unbalanced": [2, 0, 0, 3, 1, 1, 0, 0],
    "one class": [4] * 6,
    "all different": [0, 1, 2, 3, 4, 5],
    "a single positive pair": [3, 0, 1, 2, 0],
    "one image": [2],
    "two images": [1, 1],
    "two classes": [1, 5],
    "larger than a tile of cdist": [i % 7 for i in range(40)],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("name", [*PAIRS, *WITH_CLASSES])
def test_equals_the_library(name: str, labels: list[int]) -> None:
    assert_equal(make(name), *draw_batch(labels))


@pytest.mark.parametrize("name", [*PAIRS, *WITH_CLASSES])
@SETTINGS
@given(batch=batches(zero_rows=False))
def test_equals_the_library_on_any_batch(name: str, batch: Batch) -> None:
    """Unbalanced, with duplicates, and with vectors of any length."""
    torch.manual_seed(batch.seed)
    assert_equal(make(name, batch.embedding_size), batch.x, batch.y)


@pytest.mark.parametrize("name", [*PAIRS, *WITH_CLASSES])
def test_collapsed_images_have_the_loss_of_the_library(name: str) -> None:
    x, y = draw_batch(LABELS["unbalanced"])
    assert_equal(make(name), x[:1].expand_as(x), y)


HYPERPARAMETERS = [
    *(("MultiSimilarityLoss", {"alpha": a, "beta": b}) for a, b in ((0.01, 50), (18, 100))),
    *(("CircleLoss", {"m": m, "gamma": gamma}) for m, gamma in ((0, 1), (1, 256))),
    *(("ContrastiveLoss", {"pos_margin": a, "neg_margin": b}) for a, b in ((-0.2, 2), (0, 0))),
    *(("NTXentLoss", {"temperature": t}) for t in (0.01, 100)),
    *(("SupConLoss", {"temperature": t}) for t in (0.01, 1)),
    *(("TripletMarginLoss", {"margin": m}) for m in (-0.2, 0, 2)),
    ("TripletMarginLoss", {"swap": True}),
    ("TripletMarginLoss", {"smooth_loss": True}),
    *(("MarginLoss", {"num_classes": 7, "margin": m}) for m in (-0.2, 0.1, 2)),
    ("MarginLoss", {"learn_beta": False}),
    ("MarginLoss", {"beta": 5, "margin": -4}),
    *(("FastAPLoss", {"num_bins": n}) for n in (2, 32)),
    *(("ArcFaceLoss", {"margin": m, "scale": s}) for m, s in ((0, 0.01), (90, 300))),
    *(("CosFaceLoss", {"margin": m, "scale": s}) for m, s in ((0, 0.01), (1, 200))),
    ("NormalizedSoftmaxLoss", {"temperature": 100}),
    *(("ProxyAnchorLoss", {"alpha": a, "margin": m}) for a, m in ((1, 0), (100, 1))),
    ("SoftTripleLoss", {"centers_per_class": 1}),
]


@pytest.mark.parametrize(("name", "options"), HYPERPARAMETERS, ids=str)
def test_equals_the_library_with_other_hyperparameters(name: str, options: dict[str, Any]) -> None:
    assert_equal(make(name, **options), *draw_batch(LABELS["unbalanced"]))


def lp(**options: Any) -> distances.LpDistance:
    return distances.LpDistance(**options)


OPTIONS = {
    "sum": lambda: {"reducer": reducers.SumReducer()},
    "mean": lambda: {"reducer": reducers.MeanReducer()},
    "non-zero": lambda: {"reducer": reducers.AvgNonZeroReducer()},
    "threshold": lambda: {"reducer": reducers.ThresholdReducer(low=0.3)},
    "class weights": lambda: {"reducer": reducers.ClassWeightedReducer(torch.rand(CLASSES))},
    "statistics of the reducer": lambda: {"reducer": reducers.MeanReducer(collect_stats=True)},
    "statistics": lambda: {"collect_stats": True},
    "regularizer": lambda: {"embedding_regularizer": regularizers.LpRegularizer()},
    "weighted regularizer": lambda: {
        "embedding_regularizer": regularizers.ZeroMeanRegularizer(),
        "embedding_reg_weight": 0.3,
    },
    "cosine": lambda: {"distance": distances.CosineSimilarity()},
    "inner product": lambda: {
        "distance": distances.DotProductSimilarity(normalize_embeddings=False)
    },
    "Euclidean": lambda: {"distance": lp()},
    "given lengths": lambda: {"distance": lp(normalize_embeddings=False)},
    "squared": lambda: {"distance": lp(power=2)},
    "Manhattan": lambda: {"distance": lp(p=1)},
    "SNR squared": lambda: {"distance": distances.SNRDistance(power=2)},
    "statistics of the distance": lambda: {
        "distance": distances.CosineSimilarity(collect_stats=True)
    },
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", [*PAIRS, *WITH_CLASSES])
def test_equals_the_library_with_its_options(name: str, option: str) -> None:
    """Distances, reducers and regularizers that a user can choose; what it refuses is refused."""
    torch.manual_seed(0)
    changed = OPTIONS[option]()
    if name == "MarginLoss" and option == "threshold":
        changed["num_classes"] = CLASSES
    x, y = draw_batch(LABELS["unbalanced"])
    try:
        losses = make(name, **changed)
        losses[1](x, y)
    except (AssertionError, NotImplementedError, KeyError):
        with pytest.raises((AssertionError, NotImplementedError, KeyError)):
            getattr(baselines, name)(**losses_arguments(name), **changed)(x, y)
    else:
        assert_equal(losses, x, y)


def losses_arguments(name: str) -> dict[str, Any]:
    needs_size = name in WITH_CLASSES
    return {"num_classes": CLASSES, "embedding_size": SIZE} if needs_size else {}


@pytest.mark.parametrize("name", WITH_CLASSES)
def test_weights_are_regularized_and_initialized_as_in_the_library(name: str) -> None:
    options = {
        "weight_regularizer": regularizers.LpRegularizer(),
        "weight_reg_weight": 0.4,
        "weight_init_func": nn.init.ones_,
    }
    assert_equal(make(name, **options), *draw_batch(LABELS["unbalanced"]))


@pytest.mark.parametrize("name", [*PAIRS, *WITH_CLASSES])
def test_draws_the_parameters_of_the_library(name: str) -> None:
    """And has the same names of them, so that checkpoints of both are loaded."""
    made = []
    for module in (baselines, pml):
        torch.manual_seed(3)
        loss = getattr(module, name)(**losses_arguments(name), **{**PAIRS, **WITH_CLASSES}[name])
        made.append({**loss.state_dict(), "next": torch.rand(2)})
    torch.testing.assert_close(*made, rtol=0, atol=0)


MINERS = {
    "multi-similarity": miners.MultiSimilarityMiner,  # pairs
    "batch hard": miners.BatchHardMiner,  # triplets
    "batch easy and hard": miners.BatchEasyHardMiner,
    "triplet margin": lambda: miners.TripletMarginMiner(0.3, "semihard"),
    "nothing": lambda: miners.TripletMarginMiner(-9, "hard"),
}


@pytest.mark.parametrize("miner", MINERS)
@pytest.mark.parametrize("name", [*PAIRS, *WITH_CLASSES])
def test_equals_the_library_with_a_miner(name: str, miner: str) -> None:
    x, y = draw_batch([0, 1, 2, 3] * 3)
    assert_equal(make(name), x, y, MINERS[miner]()(x, y))


def test_pairs_that_are_positive_and_negative_are_refused_as_in_the_library() -> None:
    x, y = draw_batch([0, 1, 0, 1])
    pairs = torch.tensor([0, 1])
    for loss in make("MultiSimilarityLoss"):
        with pytest.raises(AssertionError, match="positive or negative"):
            loss(x, y, (pairs, pairs + 1, pairs, pairs + 1))


@pytest.mark.parametrize("references", [1, 2, 9, 40])
@pytest.mark.parametrize("name", OF_TWO_SETS)
def test_equals_the_library_with_references(name: str, references: int) -> None:
    """Few of them, for which its losses may be empty, and many."""
    x, y = draw_batch([0, 1, 2, 0, 3])
    ref_x, ref_y = draw_batch([(3 * i) % 4 for i in range(references)], seed=1)
    losses = make(name)
    for rows in (1, 2, 5):
        assert_equal(losses, x[:rows], y[:rows], None, ref_x, ref_y)
    pairs = miners.MultiSimilarityMiner(0.9)(x, y, ref_x, ref_y)
    assert_equal(losses, x, y, pairs, ref_x, ref_y)
    assert_equal(losses, x, None, pairs, ref_x) if name != "MarginLoss" else None


@pytest.mark.parametrize("name", [*PAIRS, *WITH_CLASSES])
def test_refuses_what_the_library_refuses(name: str) -> None:
    x, y = draw_batch(LABELS["unbalanced"])
    for loss in make(name):
        with pytest.raises(ValueError, match="label"):
            loss(x)
        with pytest.raises(ValueError, match="label"):
            loss(x, y[1:])
        if name not in OF_TWO_SETS:
            with pytest.raises(ValueError, match="ref_emb"):
                loss(x, y, ref_emb=x, ref_labels=y.clone())


@pytest.mark.parametrize("name", [*PAIRS, *WITH_CLASSES])
def test_ten_steps_are_those_of_the_library(name: str) -> None:
    """In float32, to a millionth: history and weights of a run do not depend on the form."""
    histories = []
    for loss in make(name):
        torch.manual_seed(0)
        network, loss = nn.Linear(12, SIZE), loss.float()
        images, y = torch.randn(24, 12), torch.arange(24) % 6
        optimizer = torch.optim.SGD([*network.parameters(), *loss.parameters()], lr=0.01)
        history = []
        for _ in range(10):
            optimizer.zero_grad()
            value = loss(network(images), y)
            value.backward()
            optimizer.step()
            history.append(value.detach())
        histories.append(torch.stack(history))
    assert not torch.equal(histories[0][:1], histories[0][9:])
    torch.testing.assert_close(*histories, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["ArcFaceLoss", "MultiSimilarityLoss", "ProxyAnchorLoss"])
def test_has_second_derivatives(name: str) -> None:
    x, y = draw_batch(LABELS["unbalanced"])
    penalties = []
    for loss in make(name):
        at = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(at, y), at, create_graph=True)
        penalties.append(*torch.autograd.grad(gradient.square().sum(), at))
    torch.testing.assert_close(*penalties, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", baselines.__all__)
def test_the_vectorized_form_comes_before_the_library_s(name):
    """Values are equal either way: the order of the base classes decides which form computes."""
    assert getattr(baselines, name).compute_loss is VectorizedLoss.compute_loss
