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
from dml.training.schedules import describe_warmup, named_schedule, warm_up

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
