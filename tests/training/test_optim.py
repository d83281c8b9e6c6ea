import pytest
import torch
from hydra.utils import instantiate
from torch import nn

from dml.core.errors import UserError
from dml.training.optim import named_schedule, parameter_groups


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
