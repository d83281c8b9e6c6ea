import copy

import pytest
import torch
from hydra.utils import instantiate
from timm.optim import param_groups_layer_decay
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from dml.config.check import check
from dml.core.errors import ConfigError, UserError
from dml.models.backbones import TimmBackbone
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.runs.build import Builder
from dml.training.optim import build_optimizer, parameter_groups
from dml.training.schedules import find_schedule_notes, named_schedule


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)


def groups(net, method, **changes):
    values = {"lr": 0.1, "weight_decay": 0.01, "loss_lr_ratio": 100.0}
    return parameter_groups(net, method, **{**values, **changes})


def test_each_parameter_in_its_group():
    net, method = Net(), nn.Linear(2, 5)
    found = {group["name"]: group for group in groups(net, method)}
    assert [len(found[name]["params"]) for name in ("backbone", "head", "loss")] == [2, 2, 2]
    assert [found[name]["lr"] for name in ("backbone", "head", "loss")] == [0.1, 0.1, 10.0]
    assert groups(net, method, loss_lr=0.3)[2]["lr"] == 0.3
    assert [group["name"] for group in groups(net, nn.Identity())] == ["backbone", "head"]


def test_batch_norm_is_a_group_if_it_is_named():
    net, method = Net(), nn.Linear(2, 5)
    net.backbone = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LayerNorm(4))
    net.head = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2))
    layers = net.backbone[1], net.head[0]
    found = {
        group["name"]: group
        for group in groups(net, method, groups={"batch_norm": {"weight_decay": 0.0}})
    }
    assert [*found] == ["backbone", "batch_norm", "head", "loss"]
    affine = {id(parameter) for layer in layers for parameter in layer.parameters()}
    assert {id(parameter) for parameter in found["batch_norm"]["params"]} == affine
    assert [group["weight_decay"] for group in found.values()] == [0.01, 0.0, 0.01, 0.01]
    assert sum(len(group["params"]) for group in found.values()) == 4 + 4 + 2 + 2
    without = {group["name"]: group for group in groups(net, method)}
    assert [len(group["params"]) for group in without.values()] == [6, 4, 2]


def test_biases_of_batch_norm_are_in_its_group():
    net = Net()
    net.backbone = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LayerNorm(4))
    named = {"bias": {"lr": 0.5}, "batch_norm": {"lr": 0.25}}
    for order in (named, dict(reversed(named.items()))):
        found = {group["name"]: group for group in groups(net, nn.Identity(), groups=order)}
        counts = {name: len(group["params"]) for name, group in found.items()}
        # weights of the linear layers; every bias but that of BatchNorm, LayerNorm's too
        assert counts["batch_norm"] == 2
        assert sum(counts.values()) == len([*net.parameters()])
        norm = {id(parameter) for parameter in net.backbone[1].parameters()}
        assert {id(parameter) for parameter in found["batch_norm"]["params"]} == norm
        assert (found["batch_norm"]["lr"], found["bias"]["lr"]) == (0.25, 0.5)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "NAdam"])
def test_fused_is_left_out_where_a_class_has_no_such_kernels(name):
    parameters = [{"name": "head", "params": [nn.Parameter(torch.ones(2))]}]
    optimizer = build_optimizer(getattr(torch.optim, name), parameters, {"fused": True, "lr": 0.1})
    assert optimizer.defaults.get("fused") is (True if "fused" in optimizer.defaults else None)


def test_a_loss_without_learning_rate_is_refused():
    with pytest.raises(UserError, match=r"optim\.loss_lr"):
        groups(Net(), nn.Linear(2, 5), loss_lr_ratio=None)
    assert len(groups(Net(), nn.Identity(), loss_lr_ratio=None)) == 2


@pytest.mark.parametrize(
    ("schedule", "expected"), [("cosine", [1, 0.75, 0.25, 0]), ("step", [1, 1, 1, 1])]
)
def test_schedules_by_name(schedule, expected):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    built = instantiate(named_schedule(schedule, 3, {}), optimizer=optimizer)
    rates = []
    for _ in range(4):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        built.step()
    assert rates == pytest.approx(expected)


class InheritsAll(ReduceLROnPlateau):
    pass


class PassesOn(ReduceLROnPlateau):
    def __init__(self, optimizer, patience=3, **more):
        super().__init__(optimizer, patience=patience, **more)


class HidesMode(ReduceLROnPlateau):
    def __init__(self, optimizer, patience=3):
        super().__init__(optimizer, patience=patience)


def make_plateau(optimizer, patience=3):
    return ReduceLROnPlateau(optimizer, patience=patience)


def built_schedule(composed, **node):
    """The schedule that a run has, and what is noted about it."""
    cfg = composed("protocol.epochs=4")
    cfg.optim.schedule = node
    builder = Builder(check(cfg))
    network = Embedder(SmallCNN(width=1), 4)
    _, schedule = builder.optimizer(network, torch.nn.Identity(), 1)
    return schedule, [*find_schedule_notes(schedule, 4, has_score=True)]


@pytest.mark.parametrize("kind", [ReduceLROnPlateau, InheritsAll, PassesOn])
def test_a_plateau_follows_a_score_that_rises(composed, kind):
    target = f"{kind.__module__}.{kind.__qualname__}"
    others = {"patience": 0, "threshold_mode": "abs", "threshold": 0.0, "cooldown": 1}
    schedule, notes = built_schedule(composed, _target_=target, **others)
    assert (schedule.mode, notes) == ("max", [])
    assert {name: getattr(schedule, name) for name in others} == others
    rates = []
    for score in (0.1, 0.2, 0.3, 0.2):
        schedule.step(score)
        rates.append(schedule.optimizer.param_groups[0]["lr"])
    assert rates[0] == rates[1] == rates[2] > rates[3]


@pytest.mark.parametrize(
    ("target", "mode"),
    [
        ("torch.optim.lr_scheduler.ReduceLROnPlateau", {"mode": "min"}),
        (f"{__name__}.InheritsAll", {"mode": "min"}),
        (f"{__name__}.HidesMode", {}),
        (f"{__name__}.make_plateau", {}),
    ],
)
def test_a_mode_of_the_user_is_kept_with_a_note(composed, target, mode):
    schedule, (note,) = built_schedule(composed, _target_=target, **mode)
    assert schedule.mode == "min"
    assert "mode=min lowers the rate while the score rises" in note
    _, notes = built_schedule(composed, _target_=target, **({"mode": "max"} if mode else {}))
    assert bool(notes) == (not mode)


def test_a_plateau_without_a_score():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    (note,) = find_schedule_notes(ReduceLROnPlateau(optimizer, "max"), 4, has_score=False)
    assert "no score" in note


@pytest.mark.parametrize(
    ("node", "steps"),
    [
        ({"_target_": "OneCycleLR", "max_lr": 1.0, "total_steps": 4}, 0),
        ({"_target_": "OneCycleLR", "max_lr": 1.0, "epochs": 4, "steps_per_epoch": 30}, 120),
        ({"_target_": "CyclicLR", "base_lr": 0.1, "max_lr": 1.0, "step_size_up": 2}, 0),
        ({"_target_": "CyclicLR", "base_lr": 0.1, "max_lr": 1.0}, 4000),
        ({"_target_": "CosineAnnealingWarmRestarts", "T_0": 2}, 0),
        ({"_target_": "StepLR", "step_size": 100}, 0),
    ],
)
def test_schedules_for_batches_are_noted(composed, node, steps):
    target = f"torch.optim.lr_scheduler.{node['_target_']}"
    if "Cycl" in target:
        node = {**node, "cycle_momentum": False}
    _, notes = built_schedule(composed, **{**node, "_target_": target})
    assert len(notes) == (steps > 0)
    assert all(f"{steps} steps" in note for note in notes)


def test_a_run_prints_the_note(run_tiny, capfd):
    plateau = "{_target_:torch.optim.lr_scheduler.ReduceLROnPlateau,mode:min}"
    run_tiny("~optim.schedule", f"+optim.schedule={plateau}", "protocol.epochs=1")
    assert "note: optim.schedule: ReduceLROnPlateau with mode=min" in capfd.readouterr().out


@pytest.fixture
def transformer():
    torch.manual_seed(0)
    return Embedder(TimmBackbone("test_vit", "none", input_size=32), 4).double()


def train_ten_steps(network, optimizer):
    generator = torch.Generator().manual_seed(1)
    for _ in range(10):
        images = torch.randn(2, 3, 32, 32, dtype=torch.float64, generator=generator)
        optimizer.zero_grad()
        ((network(images) - 0.3) ** 2).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("layer_decay", [1.0, 0.7])
@pytest.mark.parametrize("without", [{}, {"bias": {"weight_decay": 0.0}}])
def test_groups_equal_those_of_timm_in_a_plain_loop(transformer, layer_decay, without):
    by_hand = copy.deepcopy(transformer)
    values = {"lr": 0.01, "weight_decay": 0.1, "groups": without, "layer_decay": layer_decay}
    train_ten_steps(
        transformer, torch.optim.AdamW(parameter_groups(transformer, nn.Identity(), **values))
    )
    network = by_hand.backbone.network
    theirs = param_groups_layer_decay(
        network,
        weight_decay=0.1,
        no_weight_decay_list=network.no_weight_decay() if without else (),
        weight_decay_exclude_1d=bool(without),
        layer_decay=layer_decay,
    )
    for group in theirs:
        group["lr"] = 0.01 * group.pop("lr_scale")
    linear = by_hand.head.linear
    theirs += [
        {"params": [linear.weight], "lr": 0.01, "weight_decay": 0.1},
        {"params": [linear.bias], "lr": 0.01, "weight_decay": 0.0 if without else 0.1},
    ]
    train_ten_steps(by_hand, torch.optim.AdamW(theirs))
    expected = dict(by_hand.named_parameters())
    for name, parameter in transformer.named_parameters():
        torch.testing.assert_close(parameter, expected[name], rtol=1e-12, atol=1e-14)


def test_names_of_the_parts_of_a_group(transformer):
    parts = parameter_groups(transformer, nn.Identity(), lr=1.0, layer_decay=0.5)
    names = [part["name"] for part in parts]
    assert names == ["backbone", *(f"backbone_{i}" for i in range(1, 7)), "head"]
    assert [part["lr"] for part in parts] == [*(0.5**i for i in range(7)), 1.0]
    groups = {"backbone": {"betaz": 1}}
    parts = parameter_groups(transformer, nn.Identity(), lr=1.0, layer_decay=0.5, groups=groups)
    with pytest.raises(ConfigError) as raised:
        build_optimizer(torch.optim.Adam, parts, {})
    assert str(raised.value).count("optim.groups.backbone.betaz: Adam takes no such") == 1
