import pytest
import torch
from PIL import Image
from torchvision import transforms as v1
from torchvision.transforms import v2

from dml.data.transforms import ToInput, eval_transform, train_transform

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


def test_input_of_bn_inception_is_bgr_minus_mean():
    images = torch.tensor([10, 20, 30], dtype=torch.uint8).view(1, 3, 1, 1)
    to_input = ToInput((104, 117, 128), (1, 1, 1), channel_order="bgr", scale=255)
    expected = torch.tensor([30 - 104.0, 20 - 117.0, 10 - 128.0]).view(1, 3, 1, 1)
    torch.testing.assert_close(to_input(images), expected)


def test_input_of_the_others_is_rgb_by_mean_and_deviation():
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    reference = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)])
    torch.testing.assert_close(ToInput(mean, std)(IMAGE[None]), reference(IMAGE[None]))


def test_pixels_are_within_one_level_of_pillow():
    photo = Image.fromarray(IMAGE.permute(1, 2, 0).numpy())
    old = v1.Compose([v1.Resize(256), v1.CenterCrop(224), v1.PILToTensor()])
    ours = eval_transform(224, resize=256)(IMAGE)
    assert (ours.int() - old(photo).int()).abs().max() <= 1
    crop = train_transform("random_resized_crop", 224, flip=False)
    old_crop = v1.Compose([v1.RandomResizedCrop(224), v1.PILToTensor()])
    for seed in range(10):
        torch.manual_seed(seed)
        ours = crop(IMAGE)
        torch.manual_seed(seed)
        assert (ours.int() - old_crop(photo).int()).abs().max() <= 1
