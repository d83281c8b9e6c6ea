"""What only a trial finds out, told by its option before a run has a folder."""

import pytest

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import ConfigError, UserError
from dml.runs.build import Builder
from dml.runs.dry_run import dry_run


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["loss=ms", "loss._target_=tests.test_trials.failing"], "loss: these values make it fail"),
        (
            ["loss=ms", "loss._target_=tests.test_trials.nothing"],
            "loss._target_: .* not create a loss",
        ),
        (
            ["method._target_=tests.test_trials.nothing"],
            "method._target_: .* not create a method",
        ),
        (["data.reader._target_=torch.Tensor"], ""),  # has no signature: the reader itself tells
        (["embedder.size=100000000"], "embedder.size=100000000 must be at least 1 and at most "),
        (["optim._target_=tests.test_trials.nothing"], "optim._target_: does not create a torch"),
        (["+optim.groups.hea.lr=1"], "optim.groups: no group 'hea'; did you mean 'head'"),
    ],
)
def test_what_cannot_work_is_told(composed, overrides, message):
    config = check(composed(*overrides), Config)
    if not message:
        return dry_run(Builder(config))
    with pytest.raises((ConfigError, UserError), match=message) as caught:
        dry_run(Builder(config))
    assert len(str(caught.value).splitlines()) == 1
    return None


def test_endless_training_is_tried_for_a_moment(composed):
    """The schedule of the traditional protocol is stepped as often as the run would."""
    dry_run(Builder(check(composed("protocol.epochs=1000000000"), Config)))


def nothing(*args, **kwargs):
    """A target that takes all and makes no object of use."""


def failing(**kwargs):
    """A loss whose mistake shows only when it is computed."""
    from torch import nn

    return nn.Bilinear(2, 2, 2)
