"""Averaged weights are evaluated, selected, exported and loaded; the raw ones are trained on."""

import random

import numpy as np
import pytest
import torch

import dml
from dml.config.check import check
from dml.core.errors import ConfigError
from dml.runs.folder.run_folder import RunFolder
from dml.training.checkpoint_files import read_checkpoint
from dml.training.train_state import average_weights
from tests.conftest import run_config
from tests.killed_process import KILLED, die_at
from tests.system.conftest import DIGITS
from tests.system.finished_runs import JOB, results_of, start

FEW_IMAGES = ("data.batch_size=12", "protocol.steps_per_epoch=7")
EMA = ("ema=0.8", "optim.schedule=cosine", "optim.warmup_steps=3")


@pytest.fixture
def averaged(run_tiny, kept_states):
    summary, folder = run_tiny("ema=0.8", "protocol.evaluate_unit=steps", "protocol.epochs=1")
    return summary, folder


def weights_of(folder, name):
    return read_checkpoint(folder / "checkpoints" / JOB / name)


def without_module(average):
    return {
        name.removeprefix("module."): value
        for name, value in average.items()
        if name != "n_averaged"
    }


def test_the_best_weights_are_the_average_with_its_statistics(averaged):
    _, folder = averaged
    best, last = weights_of(folder, "best.pt"), weights_of(folder, "last.pt")
    average = without_module(last["average"])
    if best["step"] == last["step"]:
        assert all(torch.equal(best["embedder"][name], average[name]) for name in average)
    raw = last["embedder"]
    moved = {name for name in raw if not torch.equal(raw[name], average[name])}
    assert {name.rpartition(".")[2] for name in moved} >= {"weight", "running_mean", "running_var"}


def test_scores_are_those_of_the_average(averaged, run_tiny):
    summary, folder = averaged
    embedder, _ = dml.load(folder)
    best = weights_of(folder, "best.pt")["embedder"]
    for name, value in embedder.state_dict().items():
        assert torch.equal(value, best[name])
    raw, _ = run_tiny("protocol.evaluate_unit=steps", "protocol.epochs=1")
    assert raw["metrics"]["map_at_r"] != summary["metrics"]["map_at_r"]


def test_training_is_that_without_an_average(run_tiny, kept_states):
    """Evaluations leave the raw weights where they were."""
    _, plain = run_tiny()
    _, averaged = run_tiny("ema=0.9")
    expected, trained = (weights_of(folder, "last.pt") for folder in (plain, averaged))
    for name, value in expected["embedder"].items():
        assert torch.equal(value, trained["embedder"][name]), name
    assert "average" not in expected


def test_an_average_near_zero_decay_scores_as_the_last_step(run_tiny):
    plain, _ = run_tiny()
    averaged, _ = run_tiny("ema=1e-9")
    for name, score in plain["metrics"].items():
        assert averaged["metrics"][name] == pytest.approx(score, abs=5e-3)


class Rows:
    """Rows from all generators; the classes change with the epoch."""

    def __init__(self, labels, batch_size, seed):
        self.labels, self.batch_size = labels, batch_size
        self.generator = np.random.default_rng(seed)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        for _ in range(len(self.labels) // self.batch_size):
            shift = random.randrange(99) + np.random.randint(99) + int(torch.randint(99, ()))
            rows = self.generator.permutation(len(self.labels))[: self.batch_size]
            yield (rows + shift + self.epoch) % len(self.labels)


def darken(image):
    """Draws from all generators."""
    shift = np.random.randint(40) + random.randrange(40) + int(torch.randint(40, ()))
    return (image // 2 + shift).to(torch.uint8)


class Darken:
    def __call__(self, image):
        return darken(image)


CUSTOM = (
    f"data.sampler={{_target_:{__name__}.Rows}}",
    f"transform.then=[color_jitter,{{_target_:{__name__}.Darken}}]",
)


@pytest.mark.parametrize("point", ["after_step:10", "after_evaluation:3", "before_rename:2"])
@pytest.mark.parametrize("workers", [0, 2])
def test_killed_and_continued(composed, tmp_path, point, workers):
    """With a sampler and an augmentation of users, and once without."""
    more = () if (point, workers) == ("after_step:10", 0) else CUSTOM
    folders = []
    for name in ("calm", "killed"):
        places = (f"outputs={tmp_path / name}", f"data.workers={workers}")
        cfg = composed(*DIGITS, *EMA, *more, *FEW_IMAGES, *places)
        folders.append(RunFolder.of(check(cfg)))
        if name == "killed":
            assert die_at(point, start, cfg) == KILLED
        run_config(cfg)
    calm, killed = map(results_of, folders)
    assert killed == calm


def test_custom_parts_do_not_depend_on_loading_processes(composed, tmp_path):
    histories = []
    for workers in (0, 2):
        places = (f"outputs={tmp_path / str(workers)}", f"data.workers={workers}")
        cfg = composed(*DIGITS, *CUSTOM, *FEW_IMAGES, *places)
        histories.append((run_config(cfg)[1] / "history.csv").read_bytes())
    assert histories[0] == histories[1]


class WithCounts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("positions", torch.arange(1000), persistent=False)
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("phase", torch.tensor([1j]))
        self.weight = torch.nn.Parameter(torch.ones(1))


@pytest.mark.parametrize("decay", [0.0, 0.7, 0.9, 0.95, 0.9995, 0.9999])
def test_whole_numbers_are_copied(decay):
    """Such as relative positions: 0.9 x + 0.1 x is less than x for many whole numbers x."""
    network = WithCounts()
    average = average_weights(network, decay)
    for value in (1.0, 2.0, 4.0):
        network.weight.data.fill_(value)
        network.phase.fill_(value * 1j)
        network.positions += 1
        average.update_parameters(network)
    assert torch.equal(average.module.positions, network.positions)
    assert torch.equal(average.module.mask, network.mask)
    expected = decay * (decay + 2 * (1 - decay)) + 4 * (1 - decay)
    assert average.module.weight.item() == pytest.approx(expected)
    assert average.module.phase.imag.item() == pytest.approx(expected)


class Sticky(torch.nn.Module):
    def __deepcopy__(self, memo):
        raise RuntimeError("not this one")


def test_a_network_that_cannot_be_copied_is_one_line():
    with pytest.raises(ConfigError, match="ema: the network cannot be copied: not this one"):
        average_weights(Sticky(), 0.9)
