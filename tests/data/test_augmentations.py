"""Augmentations after crop and flip: reproducible, tried once, and of no effect elsewhere."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from dml.config.check import check
from dml.core.errors import ConfigError
from dml.core.option_values import MoreAugmentation
from dml.data.augmentations import NAMED, Augmentations
from dml.runs.build import Builder
from tests.conftest import TINY, run_config

IMAGE = torch.randint(0, 256, (3, 24, 24), dtype=torch.uint8, generator=torch.Generator())


def draws_everywhere(image):
    """Draws from all generators, as code of users may."""
    shift = int(torch.randint(50, ())) + random.randrange(50) + int(np.random.randint(50))
    return (image // 4 + shift).clamp(0, 255).to(torch.uint8)


def augment(seed, step=draws_everywhere):
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return Augmentations([("mine", step)])(IMAGE)


def test_all_generators_follow_the_seed_of_the_image_and_are_restored():
    random.seed(1)
    np.random.seed(2)
    before = random.getstate(), np.random.get_state()[1].tolist()
    first = augment(5)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    random.seed(3)
    np.random.seed(4)
    assert torch.equal(augment(5), first)
    assert len({augment(seed).sum().item() for seed in range(20)}) > 10


def test_generators_are_restored_after_an_error():
    before = random.getstate()
    with pytest.raises(ZeroDivisionError):
        augment(5, lambda image: random.random() / 0)
    assert random.getstate() == before


@pytest.mark.parametrize("name", NAMED)
def test_named_ones_change_pixels_and_no_form(name):
    changed = [augment(seed, NAMED[name]()) for seed in range(20)]
    assert all((image.shape, image.dtype) == (IMAGE.shape, IMAGE.dtype) for image in changed)
    assert len({image.double().sum().item() for image in changed}) > 5
    Augmentations([(name, NAMED[name]())]).check(32)


def test_names_of_the_schema():
    assert set(NAMED) == set(MoreAugmentation.__args__)


class Cut(nn.Module):
    def forward(self, image):
        return image[:, 1:]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (Cut(), r"must return uint8 pixels 3x32x32, returned torch.uint8 of shape \[3, 31, 32\]"),
        (torch.Tensor.float, "returned torch.float32 of shape"),
        (lambda image: None, "returned NoneType"),
        (lambda image: image[5], "it fails on an image"),
    ],
)
def test_what_does_not_fit_is_named_at_the_start(step, message):
    with pytest.raises(ConfigError, match=f"mine: .*{message}"):
        Augmentations([("mine", step)]).check(32)


def builder(composed, choice):
    return Builder(check(composed(f"transform.then=[{choice}]")))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("{_target_: torchvision.transforms.v2.Nope}", "transform.then"),
        ("{_target_: torchvision.transforms.v2.ColorJitter, brightnes: 1}", "brightnes"),
        ("blur", "transform.then"),
    ],
)
def test_mistakes_are_one_line(composed, choice, message):
    with pytest.raises(ConfigError, match=message) as raised:
        builder(composed, choice).augmentations()
    assert len(str(raised.value).splitlines()) <= 3


def test_any_class_of_torchvision(composed):
    choice = "{_target_: torchvision.transforms.v2.RandomInvert, p: 1.0}"
    more = builder(composed, f"rand_augment,{choice}").augmentations()
    assert [name for name, _ in more.steps] == ["transform.then[0]", "transform.then[1]"]
    assert torch.equal(more.steps[1][1](IMAGE), 255 - IMAGE)


def test_batches_and_scores_do_not_depend_on_loading_processes(composed, tmp_path):
    histories = []
    for workers in (0, 2):
        words = ("transform.then=[trivial_augment,random_erasing]", f"data.workers={workers}")
        cfg = composed(f"outputs={tmp_path}/{workers}", *TINY, *words)
        histories.append((run_config(cfg)[1] / "history.csv").read_bytes())
    assert histories[0] == histories[1]


def test_they_act_in_training_alone(run_tiny):
    untrained, _ = run_tiny("protocol.epochs=0")
    augmented, _ = run_tiny("protocol.epochs=0", "transform.then=[rand_augment]")
    assert augmented["metrics"] == untrained["metrics"]
    plain, first = run_tiny("protocol.epochs=1")
    trained, second = run_tiny("protocol.epochs=1", "transform.then=[rand_augment]")
    assert first != second  # another run
    assert trained["metrics"] != plain["metrics"]
