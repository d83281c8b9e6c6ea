"""A loss that returns 0 without a graph: the step is that of zero gradients, with every method."""

import copy

import numpy as np
import pytest
import torch
from pytorch_metric_learning.losses import ContrastiveLoss
from torch import nn
from torch.nn.functional import normalize

from dml.core.errors import ConfigError, UserError
from dml.methods.chance_constrained import ChanceConstrained
from dml.methods.cross_batch import CrossBatchMemory
from dml.methods.loss_values import read_loss
from dml.methods.metrix.metrix import Metrix
from dml.methods.mixing_baselines import IMix
from dml.methods.plain import Plain
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.training.interfaces import EMPTY_STEPS, Method, TrainConfig
from dml.training.step import TrainingStep
from dml.training.train_state import TrainState

LABELS = torch.arange(12) % 4
EMPTY = {
    "int": lambda x: 0,
    "float": lambda x: 0.0,
    "false": lambda x: False,
    "numpy": lambda x: np.float32(0),
    "array": lambda x: np.zeros(1),
    "tensor": lambda x: torch.tensor(0.0),
    "integer tensor": lambda x: torch.tensor(0),
    "float64": lambda x: torch.zeros((), dtype=torch.float64),
    "shape (1,)": lambda x: torch.zeros(1),
    "leaf": lambda x: torch.zeros((), requires_grad=True),
    "sum of leaves": lambda x: torch.zeros(3, requires_grad=True).sum() * 2,
    "detached": lambda x: (0 * x).sum().detach(),
    "no pair": lambda x: sum(value for value in x.flatten().tolist() if value > 1e9),
}


class Sometimes(nn.Module):
    """A loss of pairs that is empty where `empty` answers a step; references are accepted."""

    def __init__(self, empty, first=1, last=2):
        super().__init__()
        self.empty, self.first, self.last, self.step = empty, first, last, -1

    def forward(self, x, y, indices_tuple=None, ref_emb=None, ref_labels=None):
        self.step += self.training
        if self.first <= self.step <= self.last:
            return self.empty(x)
        other, labels = (x, y) if ref_emb is None else (ref_emb, ref_labels)
        same = (y[:, None] == labels).to(x.dtype)
        return ((normalize(x) @ normalize(other).T - same) ** 2).mean()


def contrastive(empty):
    """A loss of the package that the user has overridden."""
    loss, often = ContrastiveLoss(), Sometimes(empty)
    loss.forward = lambda x, y, *pairs, **references: often(x, y)
    return loss


def pool(per_class, number):
    labels = torch.arange(4).repeat_interleave(per_class)
    return [(torch.rand(len(labels), 3, 8, 8), labels)]


def ccp(empty):
    method = ChanceConstrained(Sometimes(empty, 3, 6), None, 4, 5, proxies_per_class=1, pool_size=2)
    method.attach(pool)
    return method


METHODS = {
    "plain": lambda empty: Plain(Sometimes(empty), num_classes=4),
    "miner": lambda empty: Plain(Sometimes(empty), miner=lambda x, y: None),
    "ccp": ccp,
    "xbm": lambda empty: CrossBatchMemory(Sometimes(empty, 2, 3), None, 5, start_after=1),
    "metrix": lambda empty: Metrix(contrastive(empty), w=0.0),
    "mixed": lambda empty: Metrix(contrastive(empty), types=["embed"]),
    "imix": lambda empty: IMix(contrastive(empty), clean=0.5),
}
COUNTED = {"plain": 2, "miner": 2, "ccp": 2, "xbm": 1, "metrix": 2, "mixed": 0, "imix": 0}


def train(method, steps=4, optimizer=torch.optim.AdamW, **options):
    """Weights after some steps, and what the steps log."""
    torch.manual_seed(0)
    embedder = Embedder(SmallCNN(width=2), 5)
    images = torch.rand(steps, len(LABELS), 3, 8, 8)
    trained = [*embedder.parameters(), *method.parameters()]
    rate = {"momentum": 0.9} if optimizer is torch.optim.SGD else {}
    state = TrainState(embedder, method, optimizer(trained, lr=0.01, weight_decay=0.1, **rate))
    step = TrainingStep(state, TrainConfig(1, steps, 1, **options))
    logs = [step(batch, LABELS, False) for batch in images]
    return {**embedder.state_dict(), **dict(method.named_parameters())}, logs


def assert_equal(found, expected):
    assert found[0].keys() == expected[0].keys()
    for name, value in expected[0].items():
        assert torch.equal(found[0][name], value), name
    for row, other in zip(found[1], expected[1], strict=True):
        assert torch.equal(row["loss"], other["loss"])


def zero(x):
    return 0 * x.sum()


@pytest.mark.parametrize(
    ("case", "optimizer"),
    [*((case, torch.optim.AdamW) for case in EMPTY), ("int", torch.optim.SGD)],
)
def test_an_empty_step_is_the_step_of_zero_gradients(case, optimizer):
    found = train(METHODS["plain"](EMPTY[case]), optimizer=optimizer)
    assert_equal(found, train(METHODS["plain"](zero), optimizer=optimizer))
    assert [EMPTY_STEPS in row for row in found[1]] == [False, True, True, False]
    assert found[1][1]["loss"] == 0


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("case", "options"),
    [
        ("int", {}),
        ("tensor", {}),
        ("leaf", {}),
        ("int", {"precision": "bf16"}),
        ("tensor", {"micro_batch": 4}),
        ("leaf", {"clip_norm": 1.0}),
    ],
)
def test_every_method(name, case, options):
    found = train(METHODS[name](EMPTY[case]), **options)
    assert_equal(found, train(METHODS[name](zero), **options))
    assert sum(EMPTY_STEPS in row for row in found[1]) == COUNTED[name]


def test_the_pull_of_ccp_acts_in_an_empty_step():
    method, embedder = ccp(EMPTY["int"]), Embedder(SmallCNN(width=2), 5)
    method.lambda_pull = 0.5
    state = TrainState(embedder, method, torch.optim.SGD(embedder.parameters(), lr=0.1))
    step = TrainingStep(state, TrainConfig(1, 1, 1))
    step(torch.rand(12, 3, 8, 8), LABELS, False)
    weights = {name: p.detach().clone() for name, p in embedder.named_parameters()}
    method._anchor = {name: torch.zeros_like(p) for name, p in weights.items()}
    assert EMPTY_STEPS in step(torch.rand(12, 3, 8, 8), LABELS, False)
    for name, parameter in embedder.named_parameters():
        torch.testing.assert_close(parameter.detach(), 0.95 * weights[name])


class WithProxies(nn.Module):
    """Its own parameters have gradients of zero in an empty step, those that are frozen none."""

    def __init__(self):
        super().__init__()
        self.proxies = nn.Parameter(torch.ones(4, 5))
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x, y):
        return 0


def test_gradients_of_an_empty_step():
    torch.manual_seed(0)
    method, embedder = Plain(WithProxies()), Embedder(SmallCNN(width=2), 5)
    embedder.unused = nn.Linear(2, 2)
    embedder.head.requires_grad_(False)
    state = TrainState(embedder, method, torch.optim.SGD(method.parameters(), lr=0.1))
    TrainingStep(state, TrainConfig(1, 1, 1))(torch.rand(12, 3, 8, 8), LABELS, False)
    for name, parameter in embedder.backbone.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name
    assert not method.loss.proxies.grad.any()
    unreached = [*embedder.unused.parameters(), *embedder.head.parameters(), method.loss.frozen]
    assert [parameter.grad for parameter in unreached] == [None] * len(unreached)


@pytest.mark.parametrize("found", [None, (), []])
def test_a_miner_that_finds_nothing_does_not_mean_all_pairs(found):
    seen = []

    class Loss(nn.Module):
        def forward(self, x, y, indices_tuple=None):
            seen.append([len(part) for part in indices_tuple])
            return x.sum()

    train(Plain(Loss(), miner=lambda x, y: found), steps=1)
    assert seen == [[0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("name", "returned", "message"),
    [
        ("plain", lambda x: 0.25, "no gradient; is it detached.* 0.25"),
        ("plain", lambda x: torch.tensor(3), "no gradient"),
        ("plain", lambda x: float("nan"), "returned nan without a graph"),
        ("plain", lambda x: torch.ones((), requires_grad=True), "no gradient"),
        ("plain", lambda x: x.detach().sum(), "no gradient"),
        ("plain", lambda x: x.sum(dim=1), r"must return .*a tensor of shape \[12\]"),
        ("plain", lambda x: np.zeros(3), r"a tensor of shape \[3\]"),
        ("plain", lambda x: None, "returned None"),
        ("plain", lambda x: (x.sum(), {}), "must return one number"),
        *((name, lambda x: 0.25, "no gradient") for name in ("ccp", "xbm", "imix")),
        *((name, lambda x: x.sum(dim=1), "must return") for name in ("ccp", "xbm", "imix")),
    ],
)
def test_what_is_no_loss_is_refused_in_a_line(name, returned, message):
    with pytest.raises(ConfigError, match=f"^loss: .*{message}") as refused:
        train(METHODS[name](returned))
    assert "\n" not in str(refused.value).replace("\\n", "")


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_number_of_any_shape(shape):
    found = train(METHODS["plain"](lambda x: x.square().mean().reshape(shape)))
    assert_equal(found, train(METHODS["plain"](lambda x: x.square().mean())))
    assert not any(EMPTY_STEPS in row for row in found[1])


def test_a_loss_of_its_own_parameters_is_left_alone():
    loss = WithProxies()
    x = torch.ones(3, 5, requires_grad=True) * 2
    value = loss.proxies.square().mean()
    assert read_loss(value, x, loss).value is value
    nothing = read_loss(0 * loss.proxies.sum(), x, loss)
    assert nothing.is_empty
    frozen = x.detach()
    assert not read_loss(value, frozen, loss).is_empty


class Own(Method):
    """A method of the user's that returns what its loss returns."""

    def __init__(self, empty):
        super().__init__()
        self.loss = Sometimes(empty)

    def forward(self, embedder, images, labels):
        return self.loss(embedder(images), labels), {"images": torch.tensor(len(labels))}


@pytest.mark.parametrize("case", ["int", "tensor"])
def test_a_method_of_the_users(case):
    found = train(Own(EMPTY[case]))
    assert_equal(found, train(Own(zero)))
    assert sum(EMPTY_STEPS in row for row in found[1]) == 2
    assert [row["images"].item() for row in found[1]] == [12] * 4  # also of the empty steps
    with pytest.raises(UserError, match=r"method: its loss of 0.5 has no gradient"):
        train(Own(lambda x: 0.5))


def test_copies_of_a_method_are_alike():
    method = METHODS["plain"](EMPTY["int"])
    assert_equal(train(copy.deepcopy(method)), train(method))
