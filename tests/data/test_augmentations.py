"""Augmentations after crop and flip: reproducible, tried once, and of no effect elsewhere."""

import random

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.transforms import v2

import dml
from dml.config.check import check
from dml.core.errors import ConfigError, UserError
from dml.core.option_values import MoreAugmentation
from dml.data.augmentations import NAMED, Augmentations, CustomTransform
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
    assert not [*Augmentations([(name, NAMED[name]())]).check(32)]


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
        list(Augmentations([("mine", step)]).check(32))


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


UNSEEDED = np.random.default_rng()


def roll_unseeded(image):
    return torch.roll(image, int(UNSEEDED.integers(24)))


def roll(image):
    return torch.roll(image, int(np.random.randint(24)), dims=2)


def resize(side):
    return lambda image: v2.functional.resize(image, [side, side])


@pytest.mark.parametrize("returned", [None, 3, np.zeros((3, 4, 4))])
def test_an_image_without_a_result_is_one_line(returned):
    for transform in (
        Augmentations([("mine", lambda image: returned)]),
        CustomTransform(lambda image: returned, train=True),
    ):
        with pytest.raises(UserError, match=r"returned .* for an image; return a tensor"):
            transform(IMAGE)


def test_draws_that_no_seed_decides_are_noted():
    (note,) = Augmentations([("mine", roll_unseeded), ("other", roll)]).check(24)
    assert note.startswith("mine: two passes with equal seeds differ")


def test_a_whole_transform_follows_the_seed_and_is_constant_for_test_images():
    train, test = CustomTransform(roll, True), CustomTransform(roll, False)

    def pass_through(transform, seed):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            np.random.seed(None)
            return transform(IMAGE)

    assert torch.equal(pass_through(train, 3), pass_through(train, 3))
    assert len({tuple(pass_through(train, seed)[0, 0].tolist()) for seed in range(9)}) > 3
    assert torch.equal(pass_through(test, 3), pass_through(test, 4))


@pytest.mark.parametrize(
    ("function", "train", "side", "note"),
    [
        (resize(24), True, 24, None),
        (resize(24), False, 24, None),
        (roll, True, None, None),
        (roll, False, None, "changes test images at random"),
        (roll_unseeded, True, None, "two passes with equal seeds differ"),
        (roll_unseeded, False, None, "two passes with equal seeds differ"),
    ],
)
def test_a_whole_transform_is_tried(function, train, side, note):
    notes = [*CustomTransform(function, train).check(side)]
    assert len(notes) == (note is not None)
    assert all(note in line and line.startswith("transform._target_: ") for line in notes)


@pytest.mark.parametrize(
    ("function", "side", "message"),
    [
        (resize(20), 24, r"uint8 pixels 3x24x24, .*returned torch.uint8 of shape \[3, 20, 20\]"),
        (lambda image: image / 255, None, "which are normalized later; returned torch.float32"),
        (lambda image: image[0], None, "returned torch.uint8 of shape"),
        (lambda image: image.numpy(), None, "returned ndarray"),
        (lambda image: image.nope, None, "it fails on an image: AttributeError"),
    ],
)
@pytest.mark.parametrize("train", [True, False])
def test_what_a_whole_transform_must_not_do(function, side, message, train):
    with pytest.raises(ConfigError, match=message):
        list(CustomTransform(function, train).check(side))


class Quarter:
    """Half the size; mirrored in training."""

    def __init__(self, train, size=None, mirrors=True):
        self.mirrors = train and mirrors

    def __call__(self, image):
        mirrored = self.mirrors and random.random() < 0.5
        return (image.flip(2) if mirrored else image)[:, ::2, ::2]


WHOLE = f"transform._target_={__name__}.Quarter"


def test_a_whole_transform_replaces_both(run_tiny):
    summary, folder = run_tiny(WHOLE)
    for words in ([], ["+transform.args.mirrors=false", WHOLE]):
        assert run_tiny(*words)[0]["metrics"] != summary["metrics"]
    _, transform = dml.load(folder, trust=True)
    assert transform(Image.new("RGB", (30, 20))).shape == (3, 10, 15)


def test_pixels_of_a_whole_transform_do_not_depend_on_loading_processes(composed, tmp_path):
    histories = []
    for workers in (0, 2):
        words = (WHOLE, "transform.then=[trivial_augment]", f"data.workers={workers}")
        cfg = composed(f"outputs={tmp_path}/{workers}", *TINY, *words)
        histories.append((run_config(cfg)[1] / "history.csv").read_bytes())
    assert histories[0] == histories[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["+transform.args.side=3"], "transform.args: .*write transform._target_=<class> too"),
        ([WHOLE, "+transform.args.mirror=false"], "transform.args.mirror: Quarter takes no such"),
        (["transform._target_=my.Nope"], "transform._target_: no module 'my'"),
        (["data=features", WHOLE], "transform._target_: changes images, and stored features"),
    ],
)
def test_mistakes_of_a_whole_transform_are_one_line(composed, words, message):
    with pytest.raises(ConfigError, match=message):
        Builder(check(composed(*words))).check_arguments()
