"""Batches on the device: for training by the schedule of steps, for evaluation in order."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, default_collate

from dml.core.errors import UserError
from dml.data.base import ImageDataset, ImageIndex, ImageSource, Subset
from dml.data.cache import PixelCache, open_cache
from dml.data.samplers import BatchSchedule, augmentation_seeds, class_pool

HANDLER_S = 2.0  # far longer than the system takes to tell of a process that died


def open_source(
    index: ImageIndex, cache: int | str | None, cache_device: str, root: str | Path
) -> ImageSource | None:
    """What `data.cache` and `data.cache_device` ask for; None: decode at every access.

    Args:
        index: the dataset.
        cache: None, `full`, or the shorter side in pixels of the images that are kept.
        cache_device: `cpu` (a memory-mapped file) or a CUDA device (all of it in its memory).
        root: `data.root`; the files of the cache are kept in `.cache` under it.

    Raises:
        UserError: values that do not go together; see also `open_cache`.
    """
    in_memory = isinstance(index.images, np.ndarray)
    device = torch.device(cache_device)
    if cache is None and not in_memory and device.type != "cpu":
        raise UserError(
            f"data.cache_device: {cache_device} needs decoded images; set data.cache=256 or full"
        )
    if device.type == "cpu" and (cache is None or in_memory):
        return None
    if not (cache in (None, "full") or (isinstance(cache, int) and cache > 0)):
        raise UserError(f"data.cache: '{cache}' is neither null, full nor a number of pixels")
    folder = Path(root) if Path(root).is_dir() else Path(root).parent  # of a CSV file
    side = cache if isinstance(cache, int) else None
    pixels = open_cache(index, side, folder / ".cache")
    return pixels if device.type == "cpu" else pixels.to(device)


class ScheduledSampler(Sampler[list[tuple[int, int]]]):
    """The (row, draw) pairs of steps `start`..`stop`−1 of a schedule: one rank's share of each.

    The shares of all ranks, one after the other, are the batch of an undivided run.
    """

    def __init__(
        self,
        schedule: BatchSchedule,
        seed: int,
        start: int,
        stop: int,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if schedule.batch_size % world_size:
            raise ValueError(
                f"batch_size {schedule.batch_size} is no multiple of {world_size} processes"
            )
        self.schedule, self.seed, self.start, self.stop = schedule, seed, start, stop
        share = schedule.batch_size // world_size
        self.share = slice(rank * share, (rank + 1) * share)

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for step in range(self.start, self.stop):
            rows = self.schedule.batch(step).tolist()
            pairs = list(zip(rows, augmentation_seeds(self.seed, step, len(rows)), strict=True))
            yield pairs[self.share]


class Batches:
    """Iterates `(images, labels)`: float images B×3×H×W and labels B on the device.

    Args:
        loader: gives uint8 images and labels.
        to_input: turns the uint8 batch into floats on the device.
        device: where both end up.
    """

    def __init__(
        self, loader: DataLoader[tuple[Tensor, int]], to_input: nn.Module, device: torch.device
    ) -> None:
        self.loader = loader
        self.to_input = to_input.to(device)
        self.device = device

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        try:
            for images, labels in self.loader:
                yield (
                    self.to_input(images.to(self.device, non_blocking=True)),
                    labels.to(self.device, non_blocking=True),
                )
        except UserError as error:
            # A worker's exception arrives with its traceback in the message; the last line is ours.
            line = str(error).strip().splitlines()[-1]
            raise UserError(line.partition("UserError: ")[2] or line) from None
        except (ConnectionError, EOFError) as error:
            # A worker that dies as it hands a batch over breaks the connection before torch's
            # handler of its death has run. That one knows the reason: it raises while we wait.
            time.sleep(HANDLER_S)
            raise RuntimeError("DataLoader worker gone before its batch was here") from error


def train_batches(
    subset: Subset,
    transform: nn.Module,
    to_input: nn.Module,
    schedule: BatchSchedule,
    *,
    seed: int,
    start: int,
    stop: int,
    workers: int,
    device: torch.device,
    source: ImageSource | None = None,
    rank: int = 0,
    world_size: int = 1,
) -> Batches:
    """The training batches of steps `start`..`stop`−1, workers kept over all of them.

    Args:
        subset: the images to train on.
        transform: augmentation of one uint8 image.
        to_input: see `ToInput`.
        schedule: which images make up a step.
        seed: of the augmentations.
        start, stop: range of steps.
        workers: processes that load; 0: this one.
        device: where the batches end up.
        source: where pixels come from (`open_source`).
        rank, world_size: this process's share of every batch.
    """
    loader = DataLoader(
        ImageDataset(subset, transform, source),
        batch_sampler=ScheduledSampler(schedule, seed, start, stop, rank, world_size),
        **_loading(workers, device, source),
    )
    return Batches(loader, to_input, device)


def eval_batches(
    subset: Subset,
    transform: nn.Module,
    to_input: nn.Module,
    *,
    batch_size: int,
    workers: int,
    device: torch.device,
    source: ImageSource | None = None,
    rank: int = 0,
    world_size: int = 1,
) -> Batches:
    """All images of a subset in order; of several ranks, each loads one contiguous part."""
    cuts = np.linspace(0, len(subset), world_size + 1).astype(int)
    loader = DataLoader(
        ImageDataset(subset, transform, source),
        batch_size=batch_size,
        sampler=range(cuts[rank], cuts[rank + 1]),
        **_loading(workers, device, source),
    )
    return Batches(loader, to_input, device)


def pool_batches(
    subset: Subset,
    transform: nn.Module,
    to_input: nn.Module,
    *,
    images_per_class: int,
    seed: int,
    number: int,
    batch_size: int,
    workers: int,
    device: torch.device,
    source: ImageSource | None = None,
    rank: int = 0,
    world_size: int = 1,
) -> Batches:
    """As many random images of every class, augmented, class by class (`class_pool`).

    Of several ranks, each loads its part of every batch. Batches are equally large, or else the
    last one might leave a rank without images.
    """
    pool = class_pool(subset.labels, images_per_class, seed, number)
    batches = np.array_split(np.arange(len(pool)), math.ceil(len(pool) / batch_size))
    parts = [np.array_split(batch, world_size)[rank] for batch in batches]
    loader = DataLoader(
        ImageDataset(subset, transform, source),
        batch_sampler=[[pool[place] for place in part] for part in parts],
        **_loading(workers, device, source),
    )
    return Batches(loader, to_input, device)


def collate(
    items: list[tuple[Tensor, int]] | tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """Stacks images to B×3×H×W with channels innermost in memory, as decoders deliver them."""
    if isinstance(items, tuple):  # the dataset made a batch of them already
        return items
    sizes = {tuple(image.shape[1:]) for image, _ in items}
    if len(sizes) > 1:
        raise UserError(
            f"transform.size: images of a batch differ in size ({min(sizes)}, {max(sizes)}); "
            f"set a number of pixels"
        )
    images, labels = default_collate([(image.permute(1, 2, 0), label) for image, label in items])
    return images.permute(0, 3, 1, 2), labels


def _loading(workers: int, device: torch.device, source: ImageSource | None) -> dict[str, Any]:
    on_device = isinstance(source, PixelCache) and source.pixels.device.type != "cpu"
    return {
        # Pixels on the device are cut there, by this process.
        "num_workers": 0 if on_device else workers,
        "pin_memory": device.type == "cuda" and not on_device,
        "collate_fn": collate,
        "worker_init_fn": _leave_signals_to_parent,
        # The generator keeps DataLoader from drawing its workers' base seed from the global RNG:
        # that would make the run depend on the number of workers and on where it was continued.
        "generator": torch.Generator().manual_seed(0),
    }


def _leave_signals_to_parent(worker: int) -> None:
    """Ctrl-C reaches every process of the terminal; workers must outlive the step it interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
