import pytest
from torch import nn

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
            "loss: it fails on a batch",
        ),
        (
            ["loss=custom", f"loss._target_={HERE}.OneArgument"],
            r"fails on a batch, called as loss\(embeddings, labels\[, indices_tuple\]\): .*forward",
        ),
        (
            ["loss=custom", f"loss._target_={HERE}.Lengths"],
            r"loss: must return one number, .* for the 2 classes; returned a tensor of shape \[8\]",
        ),
        (
            ["loss=custom", f"loss._target_={HERE}.Detached"],
            "loss: its value has no gradient; is it detached?",
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


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ("loss.alpha=abc", "loss.alpha: 'abc' must be a valid number"),
        ("loss.alpha=-1", "loss.alpha: must be above 0, got -1"),
        ("embedder.size=1.5", "embedder.size: 1.5 must be a valid integer"),
        ("embedder.pooling=foo", "embedder.pooling=foo is not one of avg, max, avg+max"),
        ("backbone.width=x", "backbone.width: 'x' must be a valid integer"),
        ("loss=triplet loss.margin=null", "loss.margin: null must be a valid number"),
        ("optim.schedule.step_size=a", "optim.schedule.step_size: 'a' must be a valid integer"),
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
        dry_run(Builder(check(cfg, Config)))
    assert any(line.startswith(problem) for line in caught.value.problems), caught.value.problems


def test_all_invalid_arguments_are_reported_together(composed):
    cfg = composed("loss.alpha=a", "backbone.width=b", "embedder.bias=c")
    with pytest.raises(ConfigError) as caught:
        dry_run(Builder(check(cfg, Config)))
    assert [line.partition(":")[0] for line in caught.value.problems] == [
        "loss.alpha",
        "backbone.width",
        "embedder.bias",
    ]


def test_a_schedule_made_for_fewer_epochs(composed):
    schedule = "{_target_:torch.optim.lr_scheduler.OneCycleLR,max_lr:1,total_steps:5}"
    cfg = composed("~optim.schedule", f"+optim.schedule={schedule}", "protocol.epochs=5")
    dry_run(Builder(check(cfg, Config)))
    cfg.protocol.epochs = 6
    with pytest.raises(ConfigError, match=r"optim\.schedule: .* total steps is 5"):
        dry_run(Builder(check(cfg, Config)))


class OneArgument(nn.Module):
    """A loss without labels."""

    def forward(self, embeddings):
        return embeddings.sum()


class Lengths(nn.Module):
    """A loss that is not averaged."""

    def forward(self, embeddings, labels, indices_tuple=None):
        return embeddings.norm(dim=1)


class Detached(nn.Module):
    """A loss that trains nothing."""

    def forward(self, embeddings, labels, indices_tuple=None):
        return embeddings.detach().sum()


def nothing(*args, **kwargs):
    """A target that accepts any argument and creates nothing."""


def failing(**kwargs):
    """A loss that fails only when it is computed."""
    return nn.Bilinear(2, 2, 2)
