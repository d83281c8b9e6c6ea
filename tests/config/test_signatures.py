from pathlib import Path
from typing import Literal

import pytest
from torch import nn

from dml.config.signatures import accepted_parameters, find_argument_problems, import_target
from dml.core.errors import ConfigError


class Parent(nn.Module):
    def __init__(self, must, weight: float = 1.0, **kwargs):
        super().__init__(**kwargs)


class Child(Parent):
    def __init__(self, margin=0.5, count: int | None = None, kind: Literal["a", "b"] = "a",
                 flag=True, bins: list[int] | None = None, folder: Path = Path(),
                 **kwargs):  # fmt: skip
        super().__init__(must=3, **kwargs)


HERE = {"_target_": f"{__name__}.Child", "name": "child"}


def test_arguments_of_parent_classes_are_accepted_but_not_required():
    assert {"margin", "must", "weight"} <= set(accepted_parameters(Child))
    valid = {"weight": 2, "count": None, "folder": "x", "margin": {"_target_": "torch.nn.Identity"}}
    assert not [*find_argument_problems({**HERE, **valid}, "loss")]


@pytest.mark.parametrize(
    ("options", "option", "said"),
    [
        ({"margin": "x"}, "loss.margin", "number"),
        ({"margin": None}, "loss.margin", "null must be a valid number"),
        ({"count": 1.5}, "loss.count", "integer"),
        ({"kind": "c"}, "loss.kind", "'a' or 'b'"),
        ({"bins": [1, "x"]}, "loss.bins[1]", "integer"),
        ({"weight": "2"}, "loss.weight", "number"),
        ({"folder": 2}, "loss.folder", "text"),
        ({"wieght": 2}, "loss.wieght", "Child takes no such argument; did you mean 'weight'?"),
    ],
)
def test_invalid_argument(options, option, said):
    (problem,) = find_argument_problems({**HERE, **options}, "loss")
    assert problem.startswith(f"{option}: ")
    assert said in problem


def test_missing_argument():
    node = {"_target_": f"{__name__}.Parent"}
    (problem,) = find_argument_problems(node, "loss")
    assert problem == "loss.must: missing; add +loss.must=<value>"
    assert not [*find_argument_problems(node, "loss", supplied=["must"])]


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("nowhere.C", "no module 'nowhere' for nowhere.C; is its file in the current folder?"),
        ("torch.optim.Adan", "torch.optim has no 'Adan'"),
        ("dml.losses.__doc__", "dml.losses.__doc__ is not a class"),
        ("3", "3 cannot be imported"),
    ],
)
def test_target_that_does_not_exist(target, problem):
    with pytest.raises(ConfigError) as caught:
        import_target(target, "loss")
    (line,) = caught.value.problems
    assert line.startswith(f"loss._target_: {problem}")


DISTANCE = "pytorch_metric_learning.distances.LpDistance"


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ({"_target_": DISTANCE, "pp": 2}, "loss.distance.pp: LpDistance takes no such argument"),
        ([{"_target_": DISTANCE, "pp": 2}], "loss.distance[0].pp: LpDistance takes no such"),
        ({"_target_": DISTANCE, "power": "x"}, "loss.distance.power: 'x' must be"),
        ({"_target_": "nowhere.Distance"}, "loss.distance._target_: no module 'nowhere'"),
    ],
)
def test_an_object_among_the_arguments(argument, problem):
    loss = "pytorch_metric_learning.losses.ContrastiveLoss"
    node = {"_target_": loss, "distance": argument}
    (line,) = find_argument_problems(node, "loss")
    assert line.startswith(problem)
    assert not [*find_argument_problems({**node, "distance": {"_target_": DISTANCE}}, "loss")]


def test_what_an_inner_object_lacks_may_be_passed_by_its_owner():
    inner = {"_target_": "torch.optim.lr_scheduler.StepLR"}
    node = {"_target_": "torch.optim.lr_scheduler.SequentialLR", "schedulers": [inner]}
    assert not [*find_argument_problems(node, "optim.schedule", ["optimizer", "milestones"])]


def test_a_path_with_a_colon_is_refused_with_the_dotted_one():
    with pytest.raises(ConfigError, match=r"loss._target_: a:B must be a dotted path, as in a\.B"):
        import_target("a:B", "loss")


def as_loss(embeddings, labels):
    """A loss that is a function, and none that makes one."""
    return embeddings.sum()


def test_a_function_is_no_loss():
    node = {"_target_": f"{__name__}.as_loss"}
    *missing, advice = find_argument_problems(node, "loss", supplied=["num_classes"])
    assert len(missing) == 2
    assert advice.startswith(
        "loss: as_loss is a function, which has to return the loss, a torch.nn"
    )
    node |= {"embeddings": 1, "labels": 2}
    assert not [*find_argument_problems(node, "loss", supplied=["num_classes"])]
