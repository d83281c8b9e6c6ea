import copy
from functools import partial

import pytest
import torch
from torch import nn

from dml.config.check import check
from dml.core.errors import ConfigError, UserError
from dml.methods.plain import Plain
from dml.runs.build import Builder
from dml.runs.dry_run import dry_run

HERE = __name__
RESULTS = {  # of a method, for its loss
    "nothing": (lambda loss: None, "method: must return the loss and numbers .* a NoneType"),
    "loss": (lambda loss: loss, "method: must return the loss and numbers .* a Tensor"),
    "three": (lambda loss: (loss, {}, {}), "method: must return the loss and numbers .* 3 objects"),
    "no_dict": (lambda loss: (loss, None), "method: must return numbers .* a NoneType"),
    "text": (lambda loss: (loss, {"a": "b"}), "method: logs 'a', which must be a number: 'b'"),
    "vector": (lambda loss: (loss, {"a": torch.ones(2)}), "method: logs 'a', .*tensor"),
    "column": (lambda loss: (loss, {"epoch": 1}), "method: logs 'epoch', a column"),
}


class Wrong(Plain):
    def __init__(self, loss, of):
        super().__init__(loss)
        self.of = of

    def forward(self, embedder, images, labels):
        loss, _ = super().forward(embedder, images, labels)
        return RESULTS[self.of][0](loss)


def optimizer_of(builder, steps_per_epoch=1):
    """What builds the optimizer, and how often a run steps its schedule."""
    build = partial(builder.optimizer, steps_per_epoch=steps_per_epoch)
    return build, builder.config.protocol.epochs


def tried(cfg):
    """Builds network and loss for eight numbers and two classes, and tries them."""
    builder = Builder(config := check(cfg))
    builder.check_arguments()
    builder.embedder()
    dry_run(builder.method(2, 8), config, *optimizer_of(builder), 2, 8, torch.device("cpu"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["loss=ms", f"loss._target_={HERE}.failing"], "loss: raised on a batch"),
        (
            ["loss=custom", f"loss._target_={HERE}.OneArgument"],
            r"raised on a batch, called as loss\(embeddings, labels\[, indices_tuple\]\): .*forw",
        ),
        (
            ["loss=custom", f"loss._target_={HERE}.Detached"],
            "loss: its value has no gradient; is it detached?",
        ),
        *(
            ([f"method._target_={HERE}.Wrong", f"+method.of={name}"], RESULTS[name][1])
            for name in RESULTS
        ),
        (["loss=ms", f"loss._target_={HERE}.nothing"], "loss._target_: .* not create a loss"),
        ([f"method._target_={HERE}.nothing"], "method._target_: .* not create a method"),
        ([f"optim._target_={HERE}.nothing"], "optim._target_: does not create a torch"),
    ],
)
def test_errors_of_the_dry_run(composed, overrides, message):
    with pytest.raises((ConfigError, UserError), match=message) as caught:
        tried(composed(*overrides))
    assert len(str(caught.value).splitlines()) == 1


def test_the_schedule_of_endless_training_is_tried_briefly(composed):
    """The schedule of the traditional protocol is stepped as often as the run would."""
    tried(composed("protocol.epochs=1000000000"))


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ("loss.alpha=abc", "loss.alpha: 'abc'"),
        ("loss.alpha=-1", "loss.alpha: must be above 0, got -1"),
        ("embedder.size=1.5", "embedder.size: 1.5"),
        ("embedder.pooling=foo", "embedder.pooling: 'foo'"),
        ("backbone.width=x", "backbone.width: 'x'"),
        ("loss=triplet loss.margin=null", "loss.margin: null"),
        ("method=metrix loss=ms method.types=[feature,embedding]", "method.types"),
        ("method=metrix loss=ms method.types=[]", "method.types"),
        ("method=metrix loss=ms method.alpha=0", "method.alpha"),
        ("method=metrix loss=ms +method.hard_negatives.x=3", "method.hard_negatives.x"),
        ("method=ccp loss=c1 method.pool_size=0", "method.pool_size"),
        ("optim.schedule.step_size=a", "optim.schedule.step_size: 'a'"),
        ("optim.schedule.step_size=0", "optim.schedule: these values make it fail"),
        ("+optim.groups.head.foo=3", "optim.groups.head.foo: AdamW"),
        ("+optim.groups.hed.lr=3", "optim.groups.hed: 'hed'"),
        ("+optim.args.foo=3", "optim.args.foo: AdamW"),
        ("optim._target_=torch.optim.AdamX", "optim._target_: torch.optim has no 'AdamX'"),
        ("optim.loss_lr_ratio=null", "optim.loss_lr: the loss has parameters"),
    ],
)
def test_a_run_is_refused_before_it_has_a_folder(composed, overrides, problem):
    cfg = composed(*overrides.split())
    with pytest.raises(ConfigError) as caught:
        tried(cfg)
    assert any(line.startswith(problem) for line in caught.value.problems), caught.value.problems


def test_all_invalid_arguments_are_reported_together(composed):
    cfg = composed("loss.alpha=a", "backbone.width=b", "embedder.bias=c")
    with pytest.raises(ConfigError) as caught:
        tried(cfg)
    names = [line.partition(":")[0] for line in caught.value.problems]
    assert names == ["loss.alpha", "backbone.width", "embedder.bias"]


def test_a_schedule_made_for_fewer_epochs(composed):
    schedule = "{_target_:torch.optim.lr_scheduler.OneCycleLR,max_lr:1,total_steps:5}"
    cfg = composed("~optim.schedule", f"+optim.schedule={schedule}", "protocol.epochs=5")
    tried(cfg)
    cfg.protocol.epochs = 6
    with pytest.raises(ConfigError, match=r"optim\.schedule: .* total steps is 5"):
        tried(cfg)


@pytest.mark.parametrize(
    "words",
    [
        "loss=contrastive method=xbm",
        "loss=ms_miner method=xbm method.start_after=0",
        "loss=mfcont",
        "loss=proxy_nca optim.weight_decay=0.1",
        "loss=proxy_anchor method=metrix",
        f"loss=custom loss._target_={HERE}.Counting",
    ],
)
def test_the_loss_that_is_tried_stays_as_it_is(composed, words):
    builder = Builder(check(composed("data=digits", *words.split())))
    method = builder.method(2, 8)
    before = copy.deepcopy(method.state_dict())
    dry_run(method, builder.config, *optimizer_of(builder), 2, 8, torch.device("cpu"))
    assert str(method.state_dict()) == str(before)
    for name, tensor in method.named_parameters():
        assert torch.equal(tensor, before[name])
        assert tensor.grad is None
    losses = [module for module in method.modules() if isinstance(module, Counting)]
    assert [len(loss.batches) for loss in losses] == [0] * len(losses)


@pytest.mark.parametrize("classes", [2, 5])
def test_a_loss_is_tried_with_its_last_class(composed, classes):
    builder = Builder(check(composed("loss=custom", f"loss._target_={HERE}.FourClasses")))
    arguments = builder.config, *optimizer_of(builder), classes, 8, torch.device("cpu")
    method = builder.method(classes, 8)
    if classes <= 4:
        dry_run(method, *arguments)
        return
    with pytest.raises(ConfigError, match="loss: raised on a batch"):
        dry_run(method, *arguments)


class Counting(nn.Module):
    """A loss with parameters and a list of its batches, which is in no state."""

    def __init__(self):
        super().__init__()
        self.scale, self.batches = nn.Parameter(torch.ones(())), []

    def forward(self, embeddings, labels):
        self.batches.append(len(labels))
        return self.scale * embeddings.sum()


class FourClasses(nn.Module):
    """A loss that knows four classes."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, embeddings, labels):
        return (self.weight[labels] * embeddings.sum(dim=1)).sum()


class Unregistered(nn.Module):
    """A loss whose centers PyTorch does not know."""

    def __init__(self, centers):
        super().__init__()
        make = {
            "trained": lambda: torch.ones(2, 8, requires_grad=True),
            "listed": lambda: [nn.Parameter(torch.ones(8)) for _ in range(2)],
            "layers": lambda: {"first": (nn.Linear(8, 2),)},
            "constant": lambda: torch.ones(2, 8),
            "teacher": lambda: [nn.Linear(8, 2).requires_grad_(False)],
            "integers": lambda: torch.arange(2),
            "one": lambda: torch.tensor(0.5),
            "shared": lambda: self.weight,
        }
        self.weight = nn.Parameter(torch.ones(2, 8))
        self.hidden = [self.weight]  # registered, too
        self.centers = make[centers]()

    def forward(self, embeddings, labels):
        return (embeddings - self.weight[labels]).square().sum()


@pytest.mark.parametrize("centers", ["trained", "listed", "layers"])
def test_centers_that_would_not_be_trained_are_refused(composed, centers):
    target = f"loss._target_={HERE}.Unregistered"
    with pytest.raises(ConfigError, match=r"loss: Unregistered.centers .* nn.Parameter"):
        tried(composed("loss=custom", target, f"+loss.centers={centers}"))


class Late(nn.Module):
    """A loss that makes its weights in a batch, or replaces them there."""

    def __init__(self, form, num_classes):
        super().__init__()
        self.form, self.classes, self.weight = form, num_classes, None
        if form == "lazy":
            self.weight = nn.LazyLinear(num_classes)
        if form != "first":
            self.scale = nn.Parameter(torch.ones(()))
        if form == "replaced":
            self.weight = nn.Parameter(torch.ones(8, num_classes))

    def forward(self, embeddings, labels):
        if self.form == "registered":
            return self.scale * embeddings.sum()
        if self.form == "in place":
            self.scale.data = self.scale.data / 2
            return self.scale * embeddings.sum()
        if self.form == "layer":
            self.weight = self.weight or nn.Linear(8, self.classes)
            return nn.functional.cross_entropy(self.weight(embeddings), labels)
        if self.form == "replaced" or self.weight is None:
            self.weight = nn.Parameter(torch.ones(8, self.classes))
        return nn.functional.cross_entropy(embeddings @ self.weight, labels)


@pytest.mark.parametrize("form", ["first", "replaced", "layer", "lazy"])
def test_weights_that_the_optimizer_would_not_know_are_refused(composed, form):
    words = f"loss._target_={HERE}.Late", f"+loss.form={form}"
    with pytest.raises(
        ConfigError, match=r"loss: \S*weight\S* .* would not be trained; .*__init__"
    ):
        tried(composed("loss=custom", *words))


@pytest.mark.parametrize("form", ["registered", "in place"])
def test_weights_that_are_changed_in_place_are_accepted(composed, form):
    tried(composed("loss=custom", f"loss._target_={HERE}.Late", f"+loss.form={form}"))


@pytest.mark.parametrize(
    ("centers", "noted"),
    [("constant", 1), ("teacher", 1), ("integers", 0), ("one", 0), ("shared", 0)],
)
def test_constants_that_are_no_buffers_are_noted(composed, centers, noted):
    words = ["loss=custom", f"loss._target_={HERE}.Unregistered", f"+loss.centers={centers}"]
    builder = Builder(check(composed(*words)))
    arguments = builder.config, *optimizer_of(builder), 2, 8, torch.device("cpu")
    notes = dry_run(builder.method(2, 8), *arguments)
    assert [note.partition(" is ")[0] for note in notes] == ["loss: Unregistered.centers"] * noted


class OneArgument(nn.Module):
    """A loss without labels."""

    def forward(self, embeddings):
        return embeddings.sum()


class Detached(nn.Module):
    """A loss that trains nothing."""

    def forward(self, embeddings, labels, indices_tuple=None):
        return embeddings.detach().sum()


def nothing(*args, **kwargs):
    """A target that accepts any argument and creates nothing."""


def failing(**kwargs):
    """A loss that fails only when it is computed."""
    return nn.Bilinear(2, 2, 2)


class Nothing(nn.Module):
    """A loss whose first batches are empty."""

    def forward(self, embeddings, labels):
        return 0.0


def test_a_loss_may_be_empty_in_its_first_batch(composed):
    tried(composed("loss=custom", f"loss._target_={HERE}.Nothing"))


def test_a_method_without_a_miner_is_built_unless_one_is_chosen(composed):
    words = [f"method._target_={HERE}.Wrong", "+method.of=text", "loss=ms"]
    assert isinstance(Builder(check(composed(*words))).method(2, 8), Wrong)
    miner = "+loss.miner._target_=pytorch_metric_learning.miners.MultiSimilarityMiner"
    with pytest.raises(ConfigError, match=r"loss.miner: .*Wrong takes no argument 'miner'"):
        Builder(check(composed(*words, miner))).method(2, 8)
