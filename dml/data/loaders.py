"""Batches on the device: by a schedule of steps for training, in order for evaluation."""

from __future__ import annotations

import atexit
import math
import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, default_collate

from dml.core.errors import UserError
from dml.core.signals import SIGNALS
from dml.data.image_dataset import ImageDataset, ImageSource
from dml.data.image_index import ImageIndex, Subset
from dml.data.readers.features import FeatureDataset
from dml.data.samplers import BatchSchedule, augmentation_seeds, class_pool

MOST_WORKERS = 8  # of `auto`: more need memory and files, and often wait for the same disk
# Beginnings of torch's errors after the death of a loading process, which have no specific class.
DEAD_WORKER = ("DataLoader worker", "Pin memory thread")


def resolve_workers(
    workers: int | str, index: ImageIndex, device: torch.device, processes: int = 1
) -> int:
    """Returns the number of loading processes for the option `data.workers`.

    Args:
        workers: the number, or "auto": none for a network on the CPU, which needs all cores, and
            for images in memory, which need no decoding.
        index: the dataset.
        device: of the network.
        processes: training processes on this machine.
    """
    if workers != "auto":
        return int(workers)
    in_memory = isinstance(index.images, np.ndarray) or index.features is not None
    if in_memory or device.type == "cpu":
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(MOST_WORKERS, (cores or 1) // processes))


def resolve_eval_batch_size(batch_size: int | str, pixels: int | None, device: torch.device) -> int:
    """Returns the number of images for the option `data.eval_batch_size`.

    Args:
        batch_size: the number, or "auto": 32 images of 224 pixels on a CPU and 256 on a GPU; at
            most 256 of smaller ones and fewer of larger ones.
        pixels: side of the images; None: small images in their own size.
        device: of the network.
    """
    if batch_size != "auto":
        return int(batch_size)
    at_224 = 32 if device.type == "cpu" else 256
    return max(1, min(256, int(at_224 * (224 / (pixels or 1)) ** 2)))


@dataclass(frozen=True)
class ScheduledSampler:
    """Yields one rank's (row, draw) pairs of the steps `start`..`stop`−1 of a schedule.

    Concatenated over the ranks, the pairs of a step are the batch of a single process; its size is
    a multiple of `world_size`.
    """

    schedule: BatchSchedule
    seed: int
    start: int
    stop: int
    rank: int = 0
    world_size: int = 1

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        share = self.schedule.batch_size // self.world_size
        first = self.rank * share
        for step in range(self.start, self.stop):
            rows = self.schedule.batch(step).tolist()
            pairs = list(zip(rows, augmentation_seeds(self.seed, step, len(rows)), strict=True))
            yield pairs[first : first + share]


def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
    """Yields the batches of a loader.

    Raises:
        RuntimeError: a worker died; the message begins with an entry of `DEAD_WORKER`.
    """
    handler = signal.getsignal(signal.SIGCHLD)
    batches = iter(loader)
    if signal.getsignal(signal.SIGCHLD) != handler:
        # Torch's handler would raise between any two instructions, where the error may leave a lock
        # acquired or prevent a checkpoint. Without it, waiting for a batch ends within 5 seconds.
        signal.signal(signal.SIGCHLD, handler)
    try:
        yield from batches
    except (ConnectionError, EOFError) as error:
        raise RuntimeError(f"{DEAD_WORKER[0]} exited before it sent its batch") from error


def prepare_process(worker: int) -> None:
    """Ignores requests to stop in a worker: the training process finishes its step first."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@atexit.register
def _end_processes() -> None:
    """Kills remaining workers: Python would send SIGTERM, which they ignore, and wait for them."""
    for process in multiprocessing.active_children():
        if process.daemon:
            process.kill()


class Batches:
    """Iterates `(images, labels)`: float images B×3×H×W and labels B on the device.

    Args:
        loader: yields uint8 images and labels.
        to_input: converts uint8 batches to floats, on the device.
        device: device of the result.
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
            for images, labels in iterate(self.loader):
                yield (
                    self.to_input(images.to(self.device, non_blocking=True)),
                    labels.to(self.device, non_blocking=True),
                )
        except UserError as error:
            # A worker's exception arrives with its traceback in the message; the last line is ours.
            line = str(error).strip().splitlines()[-1]
            raise UserError(line.partition("UserError: ")[2] or line) from None


@dataclass(frozen=True)
class LoaderOptions:
    """Options of all loaders of a run.

    Attributes:
        to_input: see `ToInput`.
        device: device of the batches.
        workers: number of loading processes; 0: load in this process.
        source: source of the pixels (`dml.data.cache.open_image_source`).
        rank, world_size: position and number of the training processes that share a batch.
    """

    to_input: nn.Module
    device: torch.device
    workers: int = 0
    source: ImageSource | None = None
    rank: int = 0
    world_size: int = 1

    def batches(
        self, subset: Subset, transform: nn.Module, keep_workers: bool = False, **sampling: Any
    ) -> Batches:
        """Returns batches of a subset, in the order of `sampling` (arguments of `DataLoader`).

        With `keep_workers`, the workers are kept for the next iteration.
        """
        features = subset.index.features is not None
        loader = DataLoader(
            FeatureDataset(subset) if features else ImageDataset(subset, transform, self.source),
            num_workers=self.workers,
            persistent_workers=keep_workers and self.workers > 0,
            pin_memory=self.device.type == "cuda",
            collate_fn=collate,
            worker_init_fn=prepare_process,
            # The generator keeps DataLoader from drawing its workers' base seed from the global
            # RNG: that would make the run depend on the number of workers and on where it was
            # continued.
            generator=torch.Generator().manual_seed(0),
            **sampling,
        )
        return Batches(loader, self.to_input, self.device)


def train_batches(
    subset: Subset,
    transform: nn.Module,
    options: LoaderOptions,
    schedule: BatchSchedule,
    *,
    seed: int,
    start: int,
    stop: int,
) -> Batches:
    """Returns the training batches of the steps `start`..`stop`−1.

    Args:
        subset: the images to train on.
        transform: augmentation of one uint8 image.
        options: options of all loaders.
        schedule: the images of each step.
        seed: seed of the augmentations.
        start, stop: range of steps.
    """
    sampler = ScheduledSampler(schedule, seed, start, stop, options.rank, options.world_size)
    return options.batches(subset, transform, batch_sampler=sampler)


def eval_batches(
    subset: Subset, transform: nn.Module, options: LoaderOptions, batch_size: int
) -> Batches:
    """Returns all images of a subset in order; each rank loads one contiguous part.

    Workers are kept for later evaluations.
    """
    cuts = np.linspace(0, len(subset), options.world_size + 1).astype(int)
    rows = range(cuts[options.rank], cuts[options.rank + 1])
    sampling = {"batch_size": batch_size, "sampler": rows}
    return options.batches(subset, transform, keep_workers=True, **sampling)


def pool_batches(
    subset: Subset,
    transform: nn.Module,
    options: LoaderOptions,
    seed: int,
    batch_size: int,
    images_per_class: int,
    number: int,
) -> Batches:
    """Returns batches of `images_per_class` random, augmented images per class (see `class_pool`).

    Each rank loads its part of every batch. Batches have equal sizes (±1), because a small last one
    might leave a rank without images.
    """
    pool = class_pool(subset.labels, images_per_class, seed, number)
    batches = np.array_split(np.arange(len(pool)), math.ceil(len(pool) / batch_size))
    parts = [np.array_split(batch, options.world_size)[options.rank] for batch in batches]
    sampler = [[pool[row] for row in part] for part in parts]
    return options.batches(subset, transform, batch_sampler=sampler)


def collate(
    items: list[tuple[Tensor, int]] | tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """Stacks images …×3×H×W in the memory order of the decoders: channels innermost."""
    if isinstance(items, tuple):  # already a batch
        return items
    sizes = {tuple(image.shape[1:]) for image, _ in items}
    if len(sizes) > 1:
        raise UserError(
            f"transform.size: images of a batch differ in size ({min(sizes)}, {max(sizes)}); "
            f"set a number of pixels"
        )
    images, labels = default_collate([(image.movedim(-3, -1), label) for image, label in items])
    return images.movedim(-1, -3), labels
