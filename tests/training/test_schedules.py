"""Rates per step, their warm-up, and the units in which schedules count."""

import math

import pytest
import torch
from hydra.utils import instantiate
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dml.config.check import check
from dml.core.errors import ConfigError
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.runs.build import Builder
from dml.training.schedules import describe_warmup, find_schedule_notes, named_schedule, warm_up

STEPS = {"optim.schedule_unit": "steps"}


def rates_of(composed, words, steps_per_epoch=5, lr=0.5):
    """The rates of all steps of a run of four epochs."""
    config = check(composed("protocol.epochs=4", f"optim.lr={lr}", *words))
    network = Embedder(SmallCNN(width=1), 4)
    optimizer, schedule = Builder(config).optimizer(network, nn.Identity(), steps_per_epoch)
    rates = []
    for step in range(1, 4 * steps_per_epoch + 1):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if schedule is not None and (config.optim.schedule_unit == "steps" or step % 5 == 0):
            schedule.step()
    return rates


def cosine(step, length):
    return 0.5 * (1 + math.cos(math.pi * step / length)) / 2


def test_warm_up_and_cosine_by_hand(composed):
    rates = rates_of(composed, ["optim.schedule=cosine", "optim.warmup_steps=4"])
    expected = [0.5 * i / 4 for i in (1, 2, 3, 4)] + [cosine(i, 16) for i in range(16)]
    assert rates == pytest.approx(expected)


def test_a_warm_up_alone_ends_at_the_rate(composed):
    rates = rates_of(composed, ["optim.schedule=null", "optim.warmup_steps=3"])
    assert rates == pytest.approx([0.5 / 3, 1 / 3] + [0.5] * 18)


def test_named_schedules_count_the_same_epochs_in_both_units(composed):
    for words in (["optim.schedule=step", "+optim.schedule_args.step_size=1"], []):
        by_epoch = rates_of(composed, [*words, "optim.schedule=step"])
        steps = [word.replace("step_size=1", "step_size=5") for word in words]
        by_step = rates_of(composed, [*steps, "optim.schedule=step", "optim.schedule_unit=steps"])
        assert by_step == pytest.approx(by_epoch)
    rates = rates_of(composed, ["optim.schedule=cosine", "optim.schedule_unit=steps"])
    assert rates == pytest.approx([cosine(i, 20) for i in range(20)])


@pytest.mark.parametrize("schedule", ["step", "cosine"])
def test_models_of_a_process_have_equal_rates(schedule):
    """The folds and repeats of a run are trained one after the other."""
    rates = []
    for _ in range(3):
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
        node = named_schedule(schedule, length=60, arguments={}, epoch=5)
        built = instantiate(node, optimizer=optimizer)
        for _ in range(55):  # the rate of "step" falls after ten epochs
            optimizer.step()
            built.step()
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[0] < 1.0
    assert rates[0] == rates[1] == rates[2]


def test_arguments_of_any_schedule_count_steps(composed):
    node = "{_target_: torch.optim.lr_scheduler.OneCycleLR, max_lr: 0.5, total_steps: 20}"
    words = ["data=glyphs", "protocol=mlrc", f"optim.schedule={node}"]
    rates = rates_of(composed, [*words, "optim.schedule_unit=steps"])
    assert max(rates) == pytest.approx(0.5, rel=0.02)
    assert rates[-1] < 0.001 < rates[0] < rates[3]


@given(st.integers(1, 30), st.integers(1, 40))
def test_a_warm_up_rises_and_reaches_the_rate(warmup, more):
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=2.0)
    main = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    schedule = warm_up(optimizer, main, warmup)
    rates = []
    for _ in range(warmup + more):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    expected = [2 * i / warmup for i in range(1, warmup + 1)] + [2 * 0.9**i for i in range(more)]
    assert rates == pytest.approx(expected)


def test_a_state_continues_in_the_middle_of_a_warm_up():
    def build():
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=2.0)
        main = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
        return optimizer, warm_up(optimizer, main, 4)

    def step(optimizer, schedule, count):
        rates = []
        for _ in range(count):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        return rates

    whole = step(*build(), 10)
    for stop in (2, 4, 7):
        first = build()
        rates = step(*first, stop)
        second = build()
        for old, new in zip(first, second, strict=True):
            new.load_state_dict(old.state_dict())
        assert rates + step(*second, 10 - stop) == whole


def test_a_plateau_has_no_warm_up():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(ConfigError, match=r"optim\.warmup_steps: ReduceLROnPlateau"):
        warm_up(optimizer, plateau, 3)


def test_a_warm_up_counts_steps(composed):
    assert check(composed("optim.warmup_steps=3")).optim.schedule_unit == "steps"
    assert check(composed()).optim.schedule_unit == "epochs"
    with pytest.raises(ConfigError, match=r"optim\.schedule_unit: a warm-up of the rates"):
        check(composed("optim.warmup_steps=3", "optim.schedule_unit=epochs"))


@pytest.mark.parametrize(
    ("warmup", "total", "noted"), [(100, 4, 1), (4, 4, 1), (3, 4, 0), (0, 4, 0), (100, 0, 0)]
)
def test_a_warm_up_that_never_ends_is_noted(warmup, total, noted):
    notes = describe_warmup(warmup, total)
    assert len(notes) == noted
    if warmup == 100 and notes:
        assert "not below the 4 steps of the training: the rates reach 0.04 of" in notes[0]


def simulate_rates(optimizer, schedule, steps):
    rates = []
    for _ in range(steps):
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        schedule.step()
    return rates


@pytest.mark.parametrize(
    ("words", "epochs", "factor"),
    [
        (["data=cub", "protocol=traditional"], 10, 0.5),
        (["data=cars", "protocol=traditional"], 20, 0.5),
        (["data=sop", "protocol=traditional"], 20, 0.25),
        (["data=inshop", "protocol=traditional"], 20, 0.25),
        (["data=cub", "protocol=metrix"], 10, 0.5),
        (["data=sop", "protocol=metrix"], 10, 0.25),
    ],
)
@pytest.mark.parametrize("warmup", [0, 3])
def test_the_schedule_of_a_protocol_counts_epochs_in_both_units(
    composed, words, epochs, factor, warmup
):
    """A warm-up counts steps, and so does its schedule: ten steps would be a part of an epoch."""
    config = check(composed(*words, "loss=ms", f"optim.warmup_steps={warmup}", "optim.lr=1"))
    assert config.optim.schedule["step_size"] == (f"{epochs} epochs" if warmup else epochs)
    network = Embedder(SmallCNN(width=1), 4)
    optimizer, schedule = Builder(config).optimizer(network, nn.Identity(), steps_per_epoch=2)
    length = 2 * epochs if warmup else epochs
    rates = simulate_rates(optimizer, schedule, warmup + 2 * length)
    expected = [1] * length + [factor] * length
    assert [group[0] for group in rates[warmup:]] == pytest.approx(expected)


def test_lengths_in_epochs_may_be_typed(composed):
    node = "{_target_:torch.optim.lr_scheduler.MultiStepLR,milestones:[25 epochs,50 epochs]}"
    schedule = check(
        composed("data=glyphs", "protocol=mlrc", f"optim.schedule={node}")
    ).optim.schedule
    assert named_schedule(schedule, 0, {}, epoch=1)["milestones"] == [25, 50]
    assert named_schedule(schedule, 0, {}, epoch=7)["milestones"] == [175, 350]
    assert named_schedule("step", 0, {"step_size": "3 epochs"}, epoch=7)["step_size"] == 21
    assert named_schedule("step", 0, {"step_size": "3 weeks"})["step_size"] == "3 weeks"


@pytest.mark.parametrize(
    ("node", "highest"),
    [
        ("OneCycleLR,max_lr:0.1,total_steps:20", 1),
        ("OneCycleLR,max_lr:0.05,total_steps:20", 0.5),
        ("CyclicLR,base_lr:0.01,max_lr:0.1,step_size_up:5,cycle_momentum:false", 1),
    ],
)
def test_groups_keep_their_shares_under_a_schedule_of_absolute_rates(composed, node, highest):
    words = ["data=glyphs", "protocol=mlrc", "loss=proxy_anchor", "+optim.groups.head.lr=0.2"]
    schedule = f"optim.schedule={{_target_:torch.optim.lr_scheduler.{node}}}"
    config = check(
        composed(*words, "optim.loss_lr=3", "optim.lr=0.1", schedule, "optim.schedule_unit=steps")
    )
    network, loss = Embedder(SmallCNN(width=1), 4), nn.Linear(2, 2)
    optimizer, built = Builder(config).optimizer(network, loss, steps_per_epoch=5)
    rates = torch.tensor(simulate_rates(optimizer, built, 19))
    assert rates.max(dim=0).values.tolist() == pytest.approx(
        [0.1 * highest, 0.2 * highest, 3 * highest]
    )
    torch.testing.assert_close(rates[:, 1] / rates[:, 0], torch.full((19,), 2.0))


def test_a_cycle_after_a_warm_up_is_noted_too():
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=120)
    (note,) = find_schedule_notes(warm_up(optimizer, cycle, 3), 50, True, "steps")
    assert "50 steps are a part of its 120 steps" in note
