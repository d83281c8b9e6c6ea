import pytest

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import ConfigError, UserError
from dml.runs.build import Builder
from dml.runs.dry_run import dry_run

HERE = __name__


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["loss=ms", f"loss._target_={HERE}.failing"],
            "loss: these values make it fail",
        ),
        (
            ["loss=ms", f"loss._target_={HERE}.nothing"],
            "loss._target_: .* not create a loss",
        ),
        (
            [f"method._target_={HERE}.nothing"],
            "method._target_: .* not create a method",
        ),
        (["data.reader._target_=torch.Tensor"], ""),  # has no signature: reading fails
        (["embedder.size=100000000"], "embedder.size=100000000 must be at least 1 and at most "),
        (
            [f"optim._target_={HERE}.nothing"],
            "optim._target_: does not create a torch",
        ),
        (["+optim.groups.hea.lr=1"], "optim.groups: no group 'hea'; did you mean 'head'"),
    ],
)
def test_errors_of_the_dry_run(composed, overrides, message):
    config = check(composed(*overrides), Config)
    if not message:
        return dry_run(Builder(config))
    with pytest.raises((ConfigError, UserError), match=message) as caught:
        dry_run(Builder(config))
    assert len(str(caught.value).splitlines()) == 1
    return None


def test_the_schedule_of_endless_training_is_tried_briefly(composed):
    """The schedule of the traditional protocol is stepped as often as the run would."""
    dry_run(Builder(check(composed("protocol.epochs=1000000000"), Config)))


def nothing(*args, **kwargs):
    """A target that accepts any argument and creates nothing."""


def failing(**kwargs):
    """A loss that fails only when it is computed."""
    from torch import nn

    return nn.Bilinear(2, 2, 2)
