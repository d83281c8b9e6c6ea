import inspect
from typing import Literal

import pytest
from torch import nn

from dml.config.check import check
from dml.config.schema import Config
from dml.config.signatures import accepted_parameters, located, misfit, problems
from dml.core.errors import ConfigError
from dml.runs.dry_run import check as check_built


class Parent(nn.Module):
    def __init__(self, must, weight: float = 1.0, **kwargs):
        super().__init__(**kwargs)


class Child(Parent):
    def __init__(self, margin=0.5, count: int | None = None, kind: Literal["a", "b"] = "a",
                 flag=True, bins: list[int] | None = None, **kwargs):  # fmt: skip
        super().__init__(must=3, **kwargs)


HERE = {"_target_": f"{__name__}.Child", "name": "child"}


def test_arguments_of_parents_are_accepted_but_not_demanded():
    assert set(accepted_parameters(Child)) == {
        "margin", "count", "kind", "flag", "bins", "must", "weight",
    }  # fmt: skip
    assert list(problems({**HERE, "weight": 2, "margin": 1, "count": None}, "loss")) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"margin": "x"}, "loss.margin: 'x' must be a number"),
        ({"margin": None}, "loss.margin: null must be a number"),
        ({"margin": True}, "loss.margin: True must be a number"),
        ({"count": 1.5}, "loss.count: 1.5 must be a whole number or null"),
        ({"kind": "c"}, "loss.kind: 'c' must be one of a | b"),
        ({"flag": 1}, "loss.flag: 1 must be true or false"),
        ({"bins": 3}, "loss.bins: 3 must be a list or null"),
        ({"weight": "2"}, "loss.weight: '2' must be a number"),
        ({"wieght": 2}, "loss.wieght: Child takes no such argument; did you mean 'weight'?"),
    ],
)
def test_what_does_not_fit(options, problem):
    assert list(problems({**HERE, **options}, "loss")) == [problem]


def test_what_is_missing():
    node = {"_target_": f"{__name__}.Parent"}
    assert list(problems(node, "loss")) == ["loss.must: missing; give it a value"]
    assert list(problems(node, "loss", given=["must"])) == []


def test_nested_objects_fit_everywhere():
    margin = inspect.signature(Child).parameters["margin"]
    assert misfit({"_target_": "torch.nn.Identity"}, margin) == ""


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("nowhere.C", "loss._target_: no module 'nowhere' for nowhere.C; is it in PYTHONPATH?"),
        ("dml.losses.C3", "loss._target_: dml.losses has no 'C3'"),
        ("torch.optim.Adan", "loss._target_: torch.optim has no 'Adan'; did you mean 'Adam'?"),
        ("dml.losses.__doc__", "loss._target_: dml.losses.__doc__ is no class or function"),
        (3, "loss._target_: '3' is no dotted path of a class"),
    ],
)  # fmt: skip
def test_targets_that_are_not_there(target, problem):
    with pytest.raises(ConfigError) as caught:
        located(target, "loss")
    assert caught.value.problems == [problem]


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ("loss.alpha=abc", "loss.alpha: 'abc' must be a number"),
        ("loss.alpha=-1", "loss.alpha: must be above 0, got -1"),
        ("embedder.size=1.5", "embedder.size: 1.5 must be a whole number or null"),
        ("embedder.pooling=foo", "embedder.pooling=foo is not one of avg, max, avg+max"),
        ("backbone.width=x", "backbone.width: 'x' must be a whole number"),
        ("loss=triplet loss.margin=null", "loss.margin: null must be a number"),
        ("optim.schedule.step_size=a", "optim.schedule.step_size: 'a' must be a whole number"),
        ("optim.schedule.step_size=0", "optim.schedule: these values make it fail in use: integer"),
        ("+optim.groups.head.foo=3", "optim.groups.head.foo: AdamW takes no such option; its"),
        ("+optim.groups.hed.lr=3", "optim.groups: no group 'hed'; did you mean 'head'?"),
        ("+optim.args.foo=3", "optim.args.foo: AdamW takes no such argument"),
        ("optim._target_=torch.optim.AdamX", "optim._target_: torch.optim has no 'AdamX'; did you"),
        ("optim.loss_lr_ratio=null", "optim.loss_lr: the loss has parameters of its own but no"),
    ],
)
def test_a_run_is_refused_before_it_has_a_folder(composed, overrides, problem):
    cfg = composed(*overrides.split())
    with pytest.raises(ConfigError) as caught:
        check_built(check(cfg, Config))
    assert any(line.startswith(problem) for line in caught.value.problems), caught.value.problems


def test_all_misfits_are_told_together(composed):
    cfg = composed("loss.alpha=a", "backbone.width=b", "embedder.bias=c")
    with pytest.raises(ConfigError) as caught:
        check_built(check(cfg, Config))
    assert [line.partition(":")[0] for line in caught.value.problems] == [
        "loss.alpha",
        "backbone.width",
        "embedder.bias",
    ]


def test_a_schedule_made_for_fewer_epochs(composed):
    schedule = "{_target_:torch.optim.lr_scheduler.OneCycleLR,max_lr:1,total_steps:5}"
    cfg = composed("~optim.schedule", f"+optim.schedule={schedule}", "protocol.epochs=5")
    check_built(check(cfg, Config))
    cfg.protocol.epochs = 6
    with pytest.raises(ConfigError, match=r"optim\.schedule: .* total steps is 5"):
        check_built(check(cfg, Config))
