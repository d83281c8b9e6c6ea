from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from dml.data.cache import open_cache
from dml.data.image_dataset import ImageDataset
from dml.data.image_index import ImageIndex, Subset
from dml.data.loaders import (
    LoaderOptions,
    eval_batches,
    resolve_eval_batch_size,
    train_batches,
)
from dml.data.samplers import RandomBatches, augmentation_seeds
from dml.data.transforms import ToInput, eval_transform, train_transform

CPU = torch.device("cpu")
TO_INPUT = ToInput((0, 0, 0), (1, 1, 1), scale=255)


@pytest.fixture(scope="module")
def view() -> Subset:
    images = np.random.default_rng(0).integers(0, 256, (40, 12, 12, 3), dtype=np.uint8)
    index = ImageIndex("x", images, np.arange(40) % 5, np.full(40, "train"))
    return index.subset("train")


def train(view: Subset, start: int, stop: int, workers: int = 0, **options: object) -> list[Tensor]:
    transform = train_transform("random_resized_crop", 6)
    schedule = RandomBatches(view.labels, 8, seed=1)
    batches = train_batches(
        view,
        transform,
        LoaderOptions(TO_INPUT, CPU, workers, **options),
        schedule,
        seed=1,
        start=start,
        stop=stop,
    )
    assert len(batches) == stop - start
    return [images for images, _ in batches]


@pytest.mark.parametrize("workers", [0, 2])
def test_continued_run_sees_the_batches_of_the_undisturbed_one(view: Subset, workers: int):
    whole = train(view, 0, 8)
    torch.manual_seed(99)
    rest = train(view, 3, 8, workers)
    assert len(rest) == 5
    for expected, images in zip(whole[3:], rest, strict=True):
        assert torch.equal(images, expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_evaluation_yields_every_image_in_order(view: Subset, workers: int):
    batches = eval_batches(
        view, eval_transform(None), LoaderOptions(TO_INPUT, CPU, workers), batch_size=16
    )
    images, labels = zip(*batches, strict=True)
    assert [len(part) for part in labels] == [16, 16, 8]
    assert torch.cat(labels).tolist() == view.labels.tolist()
    expected = torch.from_numpy(view.index.images).permute(0, 3, 1, 2).float()
    assert torch.equal(torch.cat(images), expected)


def test_ranks_share_the_batches_of_the_undivided_run(view: Subset):
    whole = train(view, 2, 5)
    parts = [train(view, 2, 5, rank=rank, world_size=4) for rank in range(4)]
    for expected, *shares in zip(whole, *parts, strict=True):
        assert torch.equal(torch.cat(shares), expected)
    with pytest.raises(ValueError, match="batch_size 8 is not a multiple of 3 processes"):
        train(view, 0, 1, world_size=3)


def test_ranks_share_evaluation_without_gap_or_overlap(view: Subset):
    labels = []
    for rank in range(3):
        batches = eval_batches(
            view,
            eval_transform(None),
            LoaderOptions(TO_INPUT, CPU, rank=rank, world_size=3),
            batch_size=5,
        )
        labels += [label for _, part in batches for label in part.tolist()]
    assert labels == view.labels.tolist()


@pytest.mark.parametrize("in_cache", [False, True])
@pytest.mark.parametrize(
    "transform",
    [
        train_transform("random_affine", None, degrees=20, scale=(0.7, 1.4), padding=2),
        train_transform("random_crop", None, padding=3),
        train_transform("random_crop", 16, padding=1, flip=False),
        train_transform("none", None),
        eval_transform(None),
        eval_transform(20),
    ],
    ids=["affine", "shift", "shift and resize", "flip", "as it is", "resize"],
)
def test_small_images_get_the_same_pixels_alone_and_in_any_batch(
    view: Subset, transform: nn.Module, in_cache: bool, tmp_path: Path
):
    source = None
    if in_cache:
        files = [tmp_path / f"{row}.png" for row in range(len(view))]
        for file, image in zip(files, view.index.images, strict=True):
            Image.fromarray(image).save(file)
        source = open_cache(replace(view.index, images=files), None, tmp_path)
    dataset = ImageDataset(view, transform, source)
    keys = list(enumerate(augmentation_seeds(0, 0, 40)))
    state = torch.get_rng_state()
    images, labels = dataset.__getitems__(keys)
    assert torch.equal(torch.get_rng_state(), state)
    assert labels.tolist() == view.labels.tolist()
    alone = [dataset[key][0] for key in keys]
    assert torch.equal(images, torch.stack(alone))
    few, _ = dataset.__getitems__(keys[5:12])
    assert torch.equal(few, images[5:12])


@pytest.mark.parametrize(
    ("device", "pixels", "batch_size"),
    [("cpu", 224, 32), ("cpu", 64, 256), ("cpu", None, 256), ("cpu", 2000, 1), ("cpu", 448, 8),
     ("cuda", 224, 256), ("cuda", 448, 64)],
)  # fmt: skip
def test_batch_size_of_an_evaluation(device, pixels, batch_size):
    assert resolve_eval_batch_size("auto", pixels, torch.device(device)) == batch_size
    assert resolve_eval_batch_size(7, pixels, torch.device(device)) == 7
