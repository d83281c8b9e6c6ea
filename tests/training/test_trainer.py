import copy
import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from dml.core.errors import RunStopped, UserError
from dml.core.waits import NoAnswerError
from dml.methods.plain import Plain
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.training.checkpoint_files import Checkpoints
from dml.training.interfaces import Callbacks, TrainConfig
from dml.training.optim import parameter_groups
from dml.training.step import TrainingStep
from dml.training.stopping import Stopping
from dml.training.train_state import TrainState, average_weights
from dml.training.trainer import RunningMeans, Trainer


class Pull(nn.Module):
    """Pulls embeddings towards a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.center = nn.Parameter(torch.ones(3))

    def forward(self, embeddings, labels, indices_tuple=None):
        return ((embeddings - self.center) ** 2).sum()


@pytest.fixture
def make(tmp_path):
    def build(
        scores=lambda: {"map_at_r": 0.5},
        scheduler=None,
        patience=None,
        loss=Pull,
        sgd=None,
        **options,
    ):
        torch.manual_seed(0)
        embedder, method = Embedder(SmallCNN(width=2), 3), Plain(loss())
        groups = parameter_groups(embedder, method, lr=0.1, loss_lr=0.1)
        optimizer = torch.optim.SGD(groups, **(sgd or {}))
        values = {"epochs": 3, "steps_per_epoch": 2, "evaluate_every": 2, **options}
        batch = (torch.randn(4, 3, 8, 8), torch.arange(4))
        config, rows = TrainConfig(**values), []
        trainer = Trainer(
            TrainState(embedder, method, optimizer, scheduler and scheduler(optimizer)),
            config,
            lambda start: [batch] * (config.total_steps - start),
            Stopping(patience),
            Checkpoints(tmp_path, {}),
            Callbacks(scores, lambda metrics, step: rows.append({"step": step, **metrics})),
        )
        trainer.logged = rows
        return trainer

    return build


def backbone(trainer):
    return torch.cat([p.detach().flatten() for p in trainer.state.embedder.backbone.parameters()])


def test_the_backbone_is_frozen_during_warm_up_only(make):
    trainer = make(warmup_epochs=2, epochs=2)
    before = backbone(trainer).clone()
    trained = trainer.state.embedder.head.linear.weight, trainer.state.method.loss.center
    initial = [tensor.detach().clone() for tensor in trained]
    trainer.fit()
    assert torch.equal(backbone(trainer), before)
    assert not any(map(torch.equal, trained, initial))
    longer = make(warmup_epochs=2, epochs=3)
    longer.fit()
    assert not torch.equal(backbone(longer), before)


def test_what_is_frozen_stays_so_after_the_warm_up(make):
    state = make().state
    stem, layers = state.embedder.backbone.stem, state.embedder.backbone.layers
    stem.requires_grad_(False)
    step = TrainingStep(state, TrainConfig(1, 3, 1))
    before = [copy.deepcopy(dict(part.named_parameters())) for part in (stem, layers)]
    for warming_up in (True, False, False):
        step(torch.randn(4, 3, 8, 8), torch.arange(4), warming_up)
    assert not any(parameter.requires_grad for parameter in stem.parameters())
    assert all(torch.equal(p, before[0][name]) for name, p in stem.named_parameters())
    assert all(not torch.equal(p, before[1][name]) for name, p in layers.named_parameters())


def test_the_limit_of_values_is_that_of_gradients_of_the_limited_norm(make):
    step = make(clip_norm=1.0, clip_value=0.05)._train_on
    parameters = list(step.embedder.parameters())
    gradients = [torch.randn_like(parameter) for parameter in parameters]
    step.method.forward = lambda *batch: (
        sum((g * p).sum() for g, p in zip(gradients, parameters, strict=True)),
        {},
    )
    step(torch.zeros(1), torch.zeros(1), False)
    exact = torch.cat([g.flatten() for g in gradients])
    expected = (exact / exact.norm()).clamp(-0.05, 0.05)
    found = torch.cat([p.grad.flatten() for p in parameters])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert (found.abs() == 0.05).any()


def test_gradients_of_the_network_are_clipped_and_those_of_the_loss_are_not(make):
    trainer = make(clip_value=1e-4, epochs=1)
    trainer.fit()
    network = [p.grad.abs().max() for p in trainer.state.embedder.parameters()]
    assert max(network) <= 1e-4
    assert trainer.state.method.loss.center.grad.abs().max() > 1e-2
    by_norm = make(clip_norm=1e-3, epochs=1)
    by_norm.fit()
    norm = torch.cat([p.grad.flatten() for p in by_norm.state.embedder.parameters()]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-4)  # that of the network alone
    assert by_norm.state.method.loss.center.grad.abs().max() > 1e-2


def test_gradients_of_the_loss_are_clipped_together_with_the_network_if_asked(make):
    by_value = make(clip_value=1e-4, clip_loss_parameters=True, epochs=1)
    by_value.fit()
    assert by_value.state.method.loss.center.grad.abs().max() == pytest.approx(1e-4)
    assert max(p.grad.abs().max() for p in by_value.state.embedder.parameters()) <= 1e-4
    by_norm = make(clip_norm=1e-3, clip_loss_parameters=True, epochs=1)
    by_norm.fit()
    trained = [*by_norm.state.embedder.parameters(), *by_norm.state.method.parameters()]
    norm = torch.cat([p.grad.flatten() for p in trained]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-4)  # of both as one vector


def test_gradients_whose_squares_exceed_float32_are_clipped_to_the_norm(make):
    step = make(clip_norm=1e-3)._train_on
    parameters = list(step.embedder.parameters())
    step.method.forward = lambda *batch: (sum((-1e25 * p).sum() for p in parameters), {})
    step(torch.zeros(1), torch.zeros(1), False)
    gradient = torch.cat([p.grad.flatten() for p in step.embedder.parameters()])
    assert gradient.norm().item() == pytest.approx(1e-3)
    assert (gradient < 0).all()


def test_the_first_of_equal_evaluations_is_best_and_never_the_untrained_one(make):
    scores = iter([0.9, 0.2, 0.4, 0.4])
    trainer = make(lambda: {"map_at_r": next(scores)})
    trainer.fit()
    assert trainer.stopping.best_epoch == 2.0
    assert trainer.checkpoints.load_best()["step"] == 4
    assert [row["map_at_r"] for row in trainer.logged] == [0.9, 0.2, 0.4, 0.4]


@pytest.mark.parametrize("reason", [RunStopped("stopped by SIGTERM", 143), NoAnswerError("silent")])
def test_a_stopped_evaluation_is_repeated_with_the_same_numbers(make, reason):
    drawn = []

    def score(stops_at=None):
        drawn.append(torch.rand(()).item())
        if len(drawn) == stops_at:
            raise reason
        return {"map_at_r": 0.5}

    make(score).fit()
    undisturbed = [*drawn]
    drawn.clear()
    stopped = make(lambda: score(stops_at=2))
    with pytest.raises(type(reason)):
        stopped.fit()
    drawn.clear()
    continued = make(score)
    continued.load_state_dict(stopped.checkpoints.load())
    continued.fit()
    assert drawn == undisturbed[1:]


@pytest.mark.parametrize("score_untrained", [True, False])
def test_without_epochs_the_untrained_network_is_the_best(make, score_untrained):
    trainer = make(epochs=0, score_untrained=score_untrained)
    before = backbone(trainer).clone()
    trainer.fit()
    assert trainer.finished
    assert [row["map_at_r"] for row in trainer.logged] == [0.5]
    assert trainer.checkpoints.load_best()["metrics"] == {"map_at_r": 0.5}
    assert torch.equal(backbone(trainer), before)


def test_it_stops_early_unless_the_method_has_a_next_stage(make):
    trainer = make(epochs=50, patience=3)
    trainer.fit()
    assert trainer.step == 2 * 4  # the first evaluation improves, three more do not
    more = make(epochs=50, patience=3)
    answers = iter([True, True, False])
    more.state.method.on_stall = lambda embedder: next(answers)
    more.fit()
    assert more.step == 2 * 6


def test_rates_step_once_per_epoch_for_any_number_of_evaluations(make):
    def halve(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    for every in (1, 2, 4):
        trainer = make(scheduler=halve, evaluate_every=every, epochs=4)
        trainer.fit()
        assert trainer.state.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.5**4)


def test_evaluations_within_an_epoch_have_fractions_of_it(make):
    trainer = make(steps_per_epoch=4, evaluate_every=1, epochs=2)
    trainer.fit()
    assert [row["epoch"] for row in trainer.logged] == [step / 4 for step in range(9)]


def test_logged_losses_are_means_since_the_last_evaluation(make):
    trainer = make(epochs=2)
    seen = []
    forward = trainer.state.method.forward

    def watched(*arguments):
        loss, logs = forward(*arguments)
        seen.append(loss.item())
        return loss, logs

    trainer.state.method.forward = watched
    trainer.fit()
    logged = [row["loss"] for row in trainer.logged[1:]]
    assert logged == pytest.approx([sum(seen[:2]) / 2, sum(seen[2:]) / 2])


def test_values_of_some_steps_have_the_mean_of_these(make):
    """A method may log a value at some steps only, such as when it uses a memory."""
    trainer = make(epochs=1, steps_per_epoch=6, evaluate_every=3)
    forward, count = trainer.state.method.forward, itertools.count(1)

    def with_value(*arguments):
        loss, logs = forward(*arguments)
        step = next(count)
        if step in (2, 3, 5):
            logs = {**logs, "memory": torch.tensor(float(step))}
        return loss, logs

    trainer.state.method.forward = with_value
    trainer.fit()
    assert [row.get("memory") for row in trainer.logged] == [None, 2.5, 5.0]


def test_means_of_some_steps_continue():
    means = RunningMeans()
    means.update({"loss": torch.tensor(1.0)}, 1)
    means.update({"loss": torch.tensor(2.0), "memory": torch.tensor(8.0)}, 2)
    other = RunningMeans()
    other.load_state_dict(means.state_dict(), torch.device("cpu"))
    other.update({"loss": torch.tensor(6.0), "memory": torch.tensor(2.0)}, 3)
    assert other.compute_and_reset() == {"loss": 3.0, "memory": 5.0}


def test_the_rates_of_a_row_are_those_of_its_last_step(make):
    """A schedule that counts steps has already set those of the next step."""

    def halve(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    trainer = make(scheduler=halve, epochs=2, steps_per_epoch=2, evaluate_every=1)
    trainer.state.schedule_unit = "steps"
    trainer.fit()
    rates = [row.get("lr_backbone") for row in trainer.logged]
    assert rates == [None, 0.1, 0.05, 0.025, 0.0125]


@pytest.mark.parametrize(
    ("rates", "columns"),
    [
        ({"backbone": 0.1, "head": 0.1, "loss": 0.1}, ["lr_backbone", "lr_loss"]),
        ({"backbone": 0.1, "head": 0.3, "loss": 0.1}, ["lr_backbone", "lr_head", "lr_loss"]),
        ({"head": 0.1, "loss": 0.2}, ["lr_head", "lr_loss"]),
        ({"backbone": 0.1, "backbone_1": 0.05, "bias": 0.2}, ["lr_backbone", "lr_bias"]),
    ],
)
def test_every_rate_that_is_another_one_has_a_column(make, rates, columns):
    groups = []
    for name, rate in rates.items():
        groups.append({"name": name, "params": [nn.Parameter(torch.ones(1))], "lr": rate})
    state = make().state
    state = TrainState(state.embedder, state.method, torch.optim.SGD(groups))
    assert state.learning_rates() == {}, "no step has been made"
    state.end_step()
    assert sorted(state.learning_rates()) == columns
    for column, rate in state.learning_rates().items():
        assert rate == rates[column.removeprefix("lr_")]


def test_a_method_gets_the_weights_that_were_scored(make):
    trainer = make(epochs=2)
    state = trainer.state
    state.average = average_weights(state.embedder, 0.9)
    seen = []

    def on_evaluation(embedder, score):
        averaged = dict(state.average.module.named_parameters())
        raw = dict(embedder.named_parameters())
        # The weights are exchanged meanwhile: the module of the average has the raw ones.
        seen.append([not torch.equal(raw[name], averaged[name]) for name in raw])
        return {"first": next(iter(raw.values())).flatten()[0].item()}

    state.method.on_evaluation = on_evaluation
    trainer.fit()
    expected = next(iter(state.average.module.parameters())).flatten()[0].item()
    assert trainer.logged[-1]["first"] == expected
    assert any(seen[-1])


def test_a_plateau_halves_the_rate_once_an_evaluation(make):
    """As `protocol=conventional`: evaluations count, not epochs or steps."""
    scores = iter([0.1, 0.5, 0.5, 0.4, 0.3, 0.6, 0.5, 0.5, 0.5])

    def halve_rate(optimizer):
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
        return plateau(optimizer, mode="max", factor=0.5, patience=1, min_lr=0.03)

    length = {"epochs": 2, "steps_per_epoch": 4, "evaluate_every": 1}
    trainer = make(lambda: {"map_at_r": next(scores)}, halve_rate, **length)
    trainer.fit()
    rates = [row["lr_backbone"] for row in trainer.logged if "lr_backbone" in row]
    # The best of step 1 stays unbeaten at 2 and 3: halved for step 4. The best of step 5 stays
    # unbeaten at 6 and 7: not below min_lr for step 8.
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.03])


def test_warm_up_ends_with_its_last_step(make):
    trainer = make(warmup_epochs=2, epochs=3, steps_per_epoch=2, evaluate_every=1)
    before, frozen = backbone(trainer).clone(), {}
    trainer.callbacks.on_step = lambda step, values: frozen.update(
        {step: torch.equal(backbone(trainer), before)}
    )
    trainer.fit()
    assert frozen == {1: True, 2: True, 3: True, 4: True, 5: False, 6: False}


@pytest.mark.parametrize("evaluate_every", [1, 2, 3, 6])
def test_the_time_of_all_steps_is_counted_and_that_of_evaluations_is_not(
    make, monkeypatch, evaluate_every
):
    clock = SimpleNamespace(now=0.0)

    class SlowPull(Pull):
        def forward(self, embeddings, labels, indices_tuple=None):
            clock.now += 1
            return super().forward(embeddings, labels)

    def scores():
        clock.now += 100
        return {"map_at_r": 0.5}

    monkeypatch.setattr("time.perf_counter", lambda: clock.now)
    trainer = make(scores, loss=SlowPull, evaluate_every=evaluate_every)
    trainer.fit()
    assert trainer.step == trainer.seconds == 6


class NoisyPull(Pull):
    """Draws from every global generator.

    NumPy and Python draw two normal numbers at once, and keep the second one for the next call.
    """

    def forward(self, embeddings, labels, indices_tuple=None):
        uniform = float(np.random.rand()) + random.random()
        normal = torch.randn(()) + float(np.random.randn()) + random.gauss(0, 1)
        return super().forward(embeddings, labels) * (uniform + normal)


class Stopped(BaseException):
    pass


STOP = 3  # of six steps, within an epoch and between two evaluations


@pytest.fixture
def make_noisy(make):
    """A training run that depends on every part of its state."""

    def build(seed=0):
        def halve(optimizer):
            return torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

        def scores():  # of the weights, and falling: the best evaluation is before the stop
            return {"map_at_r": float(backbone(trainer).sin().mean()) - trainer.step}

        sgd = {"momentum": 0.9}
        trainer = make(scores, halve, loss=NoisyPull, sgd=sgd)
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        if seed:
            with torch.no_grad():
                for parameter in trainer.state.embedder.parameters():
                    parameter.add_(0.1)
        return trainer

    return build


def flat(state, path=""):
    """Name → value of nested mappings and sequences."""
    if isinstance(state, dict | list | tuple) and state:
        pairs = state.items() if isinstance(state, dict) else enumerate(state)
        return {k: v for key, value in pairs for k, v in flat(value, f"{path}/{key}").items()}
    return {path: state}


def is_equal(first, second):
    return torch.equal(first, second) if isinstance(first, torch.Tensor) else first == second


def differing(first, second):
    """The parts of two states that are not equal; times never are."""
    first, second = flat(first), flat(second)
    names = first.keys() ^ second.keys()
    for name in first.keys() & second.keys():
        if not is_equal(first[name], second[name]):
            names |= {name}
    return {name.split("/")[1] for name in names} - {"seconds"}


def stop_at(trainer, step):
    """Trains to a step, and returns the state there."""
    states = []

    def note(now, values):
        if now == step:
            states.append(copy.deepcopy(trainer.state_dict()))
            raise Stopped

    trainer.callbacks.on_step = note
    with pytest.raises(Stopped):
        trainer.fit()
    return states[0]


def test_a_loaded_state_is_the_saved_one(make_noisy):
    state = stop_at(make_noisy(), STOP)
    other = make_noisy(seed=1)
    before = copy.deepcopy(other.state_dict())
    other.load_state_dict(copy.deepcopy(state))
    assert differing(state, other.state_dict()) == set()
    assert other.seconds == state["seconds"]
    assert differing(state, before) == {*PARTS, "learning_rates"}


PARTS = ("step", "rows", "first_metrics", "sums", "counts", "embedder", "method", "optimizer",
         "scheduler", "stopping", "random")  # fmt: skip


def finish_from(trainer, state):
    """The final state of a training run that continues from a state, and its rows."""
    trainer.load_state_dict(state)
    trainer.fit()
    final = copy.deepcopy(trainer.state_dict())
    return final, trainer.logged


@pytest.mark.parametrize("lost", [None, *PARTS])
def test_every_part_of_a_state_is_needed(make_noisy, lost):
    """A continued training is an undisturbed one, and is not if a part had been left out."""
    undisturbed = make_noisy()
    undisturbed.fit()
    state = stop_at(make_noisy(), STOP)
    other = make_noisy(seed=1)
    if lost is not None:
        state[lost] = copy.deepcopy(other.state_dict()[lost])
    final, rows = finish_from(other, state)
    differs = bool(differing(final, undisturbed.state_dict()))
    differs = differs or rows != undisturbed.logged[-len(rows) :]
    assert differs == (lost is not None)


@pytest.mark.parametrize("option", ["data.micro_batch", "data.batch_size"])
def test_one_image_at_a_time_names_batch_norm_and_the_option(make, option):
    trainer = make(micro_batch=1 if option == "data.micro_batch" else None)
    if option == "data.batch_size":
        trainer.batches = lambda start: [
            (torch.randn(1, 3, 8, 8), torch.zeros(1, dtype=torch.long))
        ]
    embedder = trainer.state.embedder
    embedder.head = nn.Sequential(embedder.head, nn.BatchNorm1d(3))
    with pytest.raises(UserError, match=f"{option}: BatchNorm cannot train on one image at a time"):
        trainer.fit()
