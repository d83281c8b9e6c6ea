"""What only a trial finds out, told by its option before a run has a folder."""

import pytest

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import ConfigError, UserError
from dml.runs.dry_run import check as tried


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["loss=ms", "loss._target_=tests.test_trials.failing"], "loss: these values make it fail"),
        (["loss=ms", "loss._target_=tests.test_trials.nothing"], "loss._target_: .* makes no loss"),
        (["method._target_=tests.test_trials.nothing"], "method._target_: .* makes no method"),
        (["data.reader._target_=torch.Tensor"], ""),  # has no signature: the reader itself tells
        (["embedder.size=100000000"], "embedder.size=100000000 must be at least 1 and at most "),
        (["optim._target_=tests.test_trials.nothing"], "optim._target_: makes no torch"),
        (["+optim.groups.hea.lr=1"], "optim.groups: no group 'hea'; did you mean 'head'"),
    ],
)
def test_what_cannot_work_is_told(composed, overrides, message):
    config = check(composed(*overrides), Config)
    if not message:
        return tried(config)
    with pytest.raises((ConfigError, UserError), match=message) as caught:
        tried(config)
    assert len(str(caught.value).splitlines()) == 1
    return None


def test_endless_training_is_tried_for_a_moment(composed):
    """The schedule of the traditional protocol is stepped as often as the run would."""
    tried(check(composed("protocol.epochs=1000000000"), Config))


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ("loss.alpha=abc", "loss.alpha: 'abc' must be a number"),
        ("loss.alpha=-1", "loss.alpha: must be above 0, got -1"),
        ("embedder.size=1.5", "embedder.size: 1.5 must be a whole number or null"),
        ("embedder.pooling=foo", "embedder.pooling=foo is none of avg, max, avg+max"),
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
        tried(check(cfg, Config))
    assert any(line.startswith(problem) for line in caught.value.problems), caught.value.problems


def test_all_invalid_arguments_are_reported_together(composed):
    cfg = composed("loss.alpha=a", "backbone.width=b", "embedder.bias=c")
    with pytest.raises(ConfigError) as caught:
        tried(check(cfg, Config))
    assert [line.partition(":")[0] for line in caught.value.problems] == [
        "loss.alpha",
        "backbone.width",
        "embedder.bias",
    ]


def test_a_schedule_made_for_fewer_epochs(composed):
    schedule = "{_target_:torch.optim.lr_scheduler.OneCycleLR,max_lr:1,total_steps:5}"
    cfg = composed("~optim.schedule", f"+optim.schedule={schedule}", "protocol.epochs=5")
    tried(check(cfg, Config))
    cfg.protocol.epochs = 6
    with pytest.raises(ConfigError, match=r"optim\.schedule: .* total steps is 5"):
        tried(check(cfg, Config))


def nothing(*args, **kwargs):
    """A target that takes all and makes no object of use."""


def failing(**kwargs):
    """A loss whose mistake shows only when it is computed."""
    from torch import nn

    return nn.Bilinear(2, 2, 2)
