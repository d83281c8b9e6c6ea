"""Images per second that reach the network, compared with the usual data loader.

The plain loader is PIL, torchvision's first transforms and a float tensor per image. Ours returns
uint8 batches, which `ToInput` normalizes on the device; the last rows include that step on
the CPU, as in a run without a GPU. All paths of one table are measured in
turns within one run, so that their ratios hold on a busy machine too.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as v1

from dml.cli.parser import Parser, whole_number
from dml.core.processor import available_cores
from dml.data.cache import open_image_source
from dml.data.image_index import ImageIndex, Subset
from dml.data.loaders import LoaderOptions, eval_batches, train_batches
from dml.data.samplers import RandomBatches
from dml.data.transforms import ToInput, eval_transform, train_transform

from ._measure import in_turns, median_ratio

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 128
OpenLoader = Callable[[], Iterator[Any]]


def main(argv: list[str] | None = None) -> None:
    """Prints images/s and ratios; `--help` lists the options."""
    parser = Parser(__doc__, program="benchmark.py input")
    parser.add_argument(
        "--images",
        type=whole_number(BATCH),
        default=512,
        help=f"JPEG files of 500x375, {BATCH} or more",
    )
    parser.add_argument("--workers", type=whole_number(0), default=2)
    parser.add_argument(
        "--rounds", type=whole_number(1), default=5, help="each loader once a round; medians"
    )
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        view = write_photos(Path(folder), options.images)
        size = sum(file.stat().st_size for file in view.index.images) / len(view) / 1e3
        print(
            f"{options.images} JPEG of 500x375 ({size:.0f} kB each), {options.workers} workers, "
            f"{available_cores()} cores, torch {torch.__version__}, "
            f"median of {options.rounds} rounds"
        )
        for title, paths in (
            ("train: random resized crop 224, flip", train_paths(view, options.workers, folder)),
            ("test: resize 256, crop 224", eval_paths(view, options.workers, folder)),
        ):
            print(f"\n{title}")
            measures = {name: partial(_rate, path, len(view)) for name, path in paths.items()}
            in_turns(measures, 1)  # a round that does not count
            report(in_turns(measures, options.rounds))


def train_paths(view: Subset, workers: int, folder: str) -> dict[str, OpenLoader]:
    """Returns the training loaders by name, the plain one first."""
    augmentations = [v1.RandomResizedCrop(224), v1.RandomHorizontalFlip()]
    plain = v1.Compose([*augmentations, v1.ToTensor(), v1.Normalize(MEAN, STD)])
    schedule = RandomBatches(view.labels, BATCH, seed=0)

    def ours(cache: int | str | None, to_input: nn.Module) -> OpenLoader:
        source = open_image_source(view.index, cache, folder)
        return lambda: iter(
            train_batches(
                view,
                train_transform("random_resized_crop", 224),
                LoaderOptions(to_input, torch.device("cpu"), workers, source),
                schedule,
                seed=0,
                start=0,
                stop=schedule.steps_per_epoch,
            )
        )

    return {
        "plain (PIL, torchvision v1)": lambda: plain_loader(view, plain, workers, shuffle=True),
        "no cache": ours(None, nn.Identity()),
        "data.cache=full": ours("full", nn.Identity()),
        "data.cache=256": ours(256, nn.Identity()),
        "data.cache=full, normalized on the CPU": ours("full", ToInput(MEAN, STD)),
    }


def eval_paths(view: Subset, workers: int, folder: str) -> dict[str, OpenLoader]:
    """Returns the evaluation loaders by name, the plain one first."""
    plain = v1.Compose([v1.Resize(256), v1.CenterCrop(224), v1.ToTensor(), v1.Normalize(MEAN, STD)])

    def ours(cache: int | str | None, to_input: nn.Module) -> OpenLoader:
        source = open_image_source(view.index, cache, folder)
        return lambda: iter(
            eval_batches(
                view,
                eval_transform(224, resize=256),
                LoaderOptions(to_input, torch.device("cpu"), workers, source),
                BATCH,
            )
        )

    return {
        "plain (PIL, torchvision v1)": lambda: plain_loader(view, plain, workers, shuffle=False),
        "no cache": ours(None, nn.Identity()),
        "data.cache=full": ours("full", nn.Identity()),
        "data.cache=256": ours(256, nn.Identity()),
        "data.cache=256, normalized on the CPU": ours(256, ToInput(MEAN, STD)),
    }


class PlainDataset(Dataset[tuple[torch.Tensor, int]]):
    """The usual dataset of a metric-learning repository."""

    def __init__(self, view: Subset, transform: Callable[[Image.Image], torch.Tensor]) -> None:
        self.view, self.transform = view, transform

    def __len__(self) -> int:
        return len(self.view)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.view.index.images[row]) as opened:
            return self.transform(opened.convert("RGB")), int(self.view.labels[row])


def plain_loader(
    view: Subset, transform: Callable[..., torch.Tensor], workers: int, shuffle: bool
) -> Iterator[Any]:
    """Returns one pass over the subset by the plain loader."""
    dataset = PlainDataset(view, transform)
    return iter(DataLoader(dataset, BATCH, shuffle=shuffle, num_workers=workers))


def report(rates: dict[str, list[float]]) -> None:
    """Prints the median of each loader and of its ratios to the first."""
    first = next(iter(rates.values()))
    print(f"{'':44}{'images/s':>10}{'ratio':>8}")
    for name, values in rates.items():
        print(f"{name:44}{median(values):>10,.0f}{median_ratio(values, first):>8.1f}")


def write_photos(folder: Path, count: int) -> Subset:
    """Writes JPEG files of 500×375 with the detail of photographs (quality 90, about 70 kB)."""
    files = []
    for number in range(count):
        rng = np.random.default_rng(number)
        coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC), np.float32)
        noisy = smooth + rng.normal(0, 8, smooth.shape)
        files.append(folder / f"{number}.jpg")
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(files[-1], quality=90)
    labels = np.arange(count) % 10
    return ImageIndex("photos", files, labels, np.full(count, "train")).subset("train")


def _rate(path: OpenLoader, images: int) -> float:
    """Returns the images/s of a loader in half a second or more, with the start of its workers."""
    passes, start = 0, time.perf_counter()
    while time.perf_counter() - start < 0.5:
        seen = sum(len(labels) for _, labels in path())
        passes += 1
        if seen > images or seen < images - BATCH:
            raise RuntimeError(f"a pass gave {seen} of {images} images")
    return passes * seen / (time.perf_counter() - start)
