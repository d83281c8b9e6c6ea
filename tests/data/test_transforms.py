import math

import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision import transforms as v1
from torchvision.transforms import v2

from dml.data.transforms import (
    Affine,
    RandomResizedCrop,
    ShorterSide,
    ToInput,
    Views,
    eval_transform,
    train_transform,
)

IMAGE = torch.randint(0, 256, (3, 300, 400), dtype=torch.uint8, generator=torch.Generator())


@pytest.mark.parametrize("innermost", [False, True])
def test_random_resized_crop_follows_torchvision_for_the_same_draws(innermost: bool):
    image = IMAGE.permute(1, 2, 0).contiguous().permute(2, 0, 1) if innermost else IMAGE
    reference = v2.Compose(
        [
            v2.Resize(256, antialias=True),
            v2.RandomResizedCrop(227, scale=(0.16, 1), ratio=(0.75, 1.33), antialias=True),
            v2.RandomHorizontalFlip(),
        ]
    )
    ours = train_transform(
        "random_resized_crop", 227, resize=256, scale=(0.16, 1.0), ratio=(0.75, 1.33)
    )
    for seed in range(10):
        torch.manual_seed(seed)
        expected = reference(IMAGE)
        torch.manual_seed(seed)
        assert torch.equal(ours(image), expected)


def test_affine_moves_and_zooms_within_its_limits():
    dot = torch.zeros(3, 21, 21, dtype=torch.uint8)
    dot[:, 8:13, 8:13] = 255
    still = train_transform("random_affine", None, scale=(1, 1), flip=False)
    assert torch.equal(still(dot), dot)
    transform = train_transform(
        "random_affine", None, scale=(0.8, 1.25), padding=2, degrees=15, flip=False
    )
    ink = [float(dot.sum()) * factor for factor in (0.8**2 * 0.9, 1.25**2 * 1.1)]
    places = []
    for seed in range(100):
        torch.manual_seed(seed)
        moved = transform(dot)
        assert (moved.dtype, moved.shape) == (torch.uint8, dot.shape)
        assert ink[0] < float(moved.sum()) < ink[1]
        rows, columns = torch.nonzero(moved[0] > 127).float().mean(dim=0).tolist()
        places.append((rows - 10, columns - 10))
    offsets = torch.tensor(places)
    assert 1.5 < offsets.abs().max() < 3.0
    assert offsets.mean(dim=0).abs().max() < 0.5


def test_affine_draws_each_parameter_within_its_limits_and_by_itself():
    """The matrix is the inverse of a rotation, a scale and a shear, taken apart here."""
    torch.manual_seed(0)
    affine = Affine(degrees=20, scale=(0.7, 1.6), padding=3)
    a, b, c, d, right, down = torch.stack([affine.draw() for _ in range(2000)]).unbind(1)
    size = (a.square() + c.square()).rsqrt()
    angle = torch.atan2(-c, a).rad2deg()
    shear = torch.atan((a * b + c * d) * size.square()).rad2deg()
    limits = [(angle, -20, 20), (shear, -20, 20), (size, 0.7, 1.6), (right, -3, 3), (down, -3, 3)]
    for values, low, high in limits:
        middle, reach = (low + high) / 2, (high - low) / 2
        torch.testing.assert_close(values.mean().item(), middle, rtol=0, atol=0.1 * reach)
        assert 0.97 * reach < (values - middle).abs().max() < 1.0001 * reach
    related = torch.corrcoef(torch.stack([values for values, _, _ in limits])) - torch.eye(5)
    assert related.abs().max() < 0.1


@pytest.mark.parametrize("shape", [(7, 12), (13, 6)])
def test_affine_samples_between_four_pixels(shape):
    """Each pixel by a loop in float64; outside of the image all is black."""
    height, width = shape
    images = torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8)
    drawn = torch.tensor([[0.9, 0.25, -0.3, 1.1, 1.3, -0.7], [1.2, -0.1, 0.2, 0.8, -2.2, 0.4]])
    moved = Affine(20, (0.7, 1.6), 3).change(images, drawn)
    for image, result, numbers in zip(images, moved, drawn.tolist(), strict=True):
        a, b, c, d, right, down = numbers
        for row in range(height):
            for column in range(width):
                u, v = column - (width - 1) / 2 - right, row - (height - 1) / 2 - down
                x, y = a * u + b * v + (width - 1) / 2, c * u + d * v + (height - 1) / 2
                value = torch.zeros(3, dtype=torch.float64)
                for i in (math.floor(y), math.floor(y) + 1):
                    for j in (math.floor(x), math.floor(x) + 1):
                        if 0 <= i < height and 0 <= j < width:
                            value += image[:, i, j] * (1 - abs(y - i)) * (1 - abs(x - j))
                assert (result[:, row, column] - value).abs().max() < 0.51


def test_views_are_the_test_image_and_then_augmentations():
    small = IMAGE[:, :40, :30]
    test, train = eval_transform(20), train_transform("random_resized_crop", 20)
    torch.manual_seed(0)
    views = Views(test, train, 3)(small)
    assert views.shape == (4, 3, 20, 20)
    assert torch.equal(views[0], test(small))
    torch.manual_seed(0)
    assert torch.equal(views[1:], torch.stack([train(small) for _ in range(3)]))
    for order in ("rgb", "bgr"):  # of a batch of views as of single images
        to_input = ToInput((1, 2, 3), (4, 5, 6), order, 255)
        batch = torch.stack([views, views.flip(0)])
        assert torch.equal(to_input(batch).flatten(0, 1), to_input(batch.flatten(0, 1)))


def test_shifts_reach_every_offset_and_no_other():
    dot = torch.zeros(3, 11, 11, dtype=torch.uint8)
    dot[:, 5, 5] = 255
    transform = train_transform("random_crop", None, padding=2, flip=False)
    torch.manual_seed(0)
    places = [tuple(torch.nonzero(transform(dot)[0])[0].tolist()) for _ in range(400)]
    assert {*places} == {(row, column) for row in range(3, 8) for column in range(3, 8)}


def test_half_of_all_images_are_mirrored_from_left_to_right():
    image = torch.arange(12, dtype=torch.uint8).reshape(1, 3, 4).expand(3, 3, 4)
    transform = train_transform("none", None)
    torch.manual_seed(0)
    mirrored = 0
    for _ in range(400):
        changed = transform(image)
        is_mirrored = torch.equal(changed, image.flip(2))
        assert is_mirrored or torch.equal(changed, image)
        mirrored += is_mirrored
    assert 160 < mirrored < 240


def test_input_of_bn_inception_is_bgr_minus_mean():
    images = torch.tensor([10, 20, 30], dtype=torch.uint8).view(1, 3, 1, 1)
    to_input = ToInput((104, 117, 128), (1, 1, 1), channel_order="bgr", scale=255)
    expected = torch.tensor([30 - 104.0, 20 - 117.0, 10 - 128.0]).view(1, 3, 1, 1)
    torch.testing.assert_close(to_input(images), expected)


def test_input_of_the_others_is_rgb_by_mean_and_deviation():
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    reference = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)])
    torch.testing.assert_close(ToInput(mean, std)(IMAGE[None]), reference(IMAGE[None]))


@pytest.mark.parametrize("size", [(300, 402), (402, 300), (301, 407), (407, 301)])
def test_the_central_crop_is_within_one_level_of_pillow(size):
    image = torch.randint(0, 256, (3, *size), dtype=torch.uint8, generator=torch.Generator())
    photo = Image.fromarray(image.permute(1, 2, 0).numpy())
    old = v1.Compose([v1.Resize(256), v1.CenterCrop(224), v1.PILToTensor()])
    ours = eval_transform(224, resize=256)(image)
    assert (ours.int() - old(photo).int()).abs().max() <= 1


def test_pixels_are_within_one_level_of_pillow():
    photo = Image.fromarray(IMAGE.permute(1, 2, 0).numpy())
    crop = train_transform("random_resized_crop", 224, flip=False)
    old_crop = v1.Compose([v1.RandomResizedCrop(224), v1.PILToTensor()])
    for seed in range(10):
        torch.manual_seed(seed)
        ours = crop(IMAGE)
        torch.manual_seed(seed)
        assert (ours.int() - old_crop(photo).int()).abs().max() <= 1


class LargestTensor(TorchDispatchMode):
    """Measures the bytes of the largest tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.largest = max(self.largest, made.untyped_storage().nbytes())
        return made


def peak_and_kept(step: nn.Module, height: int, width: int) -> tuple[int, int]:
    """Bytes of the largest tensor while an image is transformed, and of what keeps the result."""
    image = torch.zeros(height, width, 3, dtype=torch.uint8).permute(2, 0, 1)
    with LargestTensor() as made:
        result = step(image)
    assert result.dtype == torch.uint8
    return made.largest, result.untyped_storage().nbytes()


EVERY = {
    "test": eval_transform(224, resize=256),
    "test, bicubic": eval_transform(224, resize=256, interpolation="bicubic"),
    "test, whole": eval_transform(224),
    "crop": train_transform("random_resized_crop", 224),
    "crop of resized": train_transform("random_resized_crop", 224, resize=256),
    "shift": train_transform("random_crop", 224, padding=4),
    "shift of resized": train_transform("random_crop", 224, resize=32, padding=4),
    "affine of resized": train_transform("random_affine", 224, resize=16, degrees=9),
    "none of resized": train_transform("none", 224, resize=64),
}


@pytest.mark.parametrize("name", EVERY)
def test_memory_does_not_grow_with_the_length_of_a_thin_image(name):
    step = EVERY[name]
    ordinary, kept = peak_and_kept(step, 375, 500)
    assert kept <= 1.3 * 3 * 224 * 224
    for shape in ((1, 300), (300, 1), (1, 20000), (20000, 1)):
        peak, kept_of_thin = peak_and_kept(step, *shape)
        assert peak <= 1.3 * ordinary, shape
        assert kept_of_thin <= 1.3 * kept, shape


@pytest.mark.parametrize(
    "shape", [(30, 700), (700, 30), (3, 301), (301, 3), (280, 3000), (300, 11)]
)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_a_window_of_a_thin_image_is_that_of_the_whole(shape, interpolation):
    image = torch.randint(0, 256, (3, *shape), dtype=torch.uint8)
    mode = v2.InterpolationMode(interpolation)
    whole = v2.Resize(64, mode)(image)
    resized = ShorterSide(64, mode)
    assert resized.resized(*shape) == tuple(whole.shape[1:])
    for height, width in ((64, 64), (40, 50)):
        tops, lefts = (whole.shape[1] - height, whole.shape[2] - width)
        for top, left in ((0, 0), (tops, lefts), (tops // 2, lefts // 3)):
            part = resized.window(image, top, left, height, width)
            expected = whole[:, top : top + height, left : left + width]
            assert part.shape == expected.shape
            assert (part.int() - expected.int()).abs().max() <= 2


def test_ordinary_images_have_the_pixels_of_torchvision():
    whole = v2.Compose([v2.Resize(256), v2.CenterCrop(224)])
    shapes = [(300, 400), (400, 300), (256, 256), (231, 2310), (100, 999), (224, 224), (257, 256)]
    for shape in shapes:
        image = torch.randint(0, 256, (3, *shape), dtype=torch.uint8)
        assert torch.equal(eval_transform(224, resize=256)(image), whole(image))


def test_a_crop_of_rows_does_not_keep_the_image():
    tall = torch.zeros(20000, 224, 3, dtype=torch.uint8).permute(2, 0, 1)
    crop = train_transform("random_resized_crop", 224, scale=(1e-2, 1.2e-2), ratio=(1, 1))
    exact = RandomResizedCrop(224, (0.0112, 0.0112), (1, 1), v2.InterpolationMode.BILINEAR)
    assert crop(tall).untyped_storage().nbytes() == 3 * 224 * 224
    assert exact(tall).untyped_storage().nbytes() == 3 * 224 * 224
