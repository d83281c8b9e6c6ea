"""Batches on the device: for training by the schedule of steps, for evaluation in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler

from dml.data.base import ImageDataset, View
from dml.data.samplers import BatchSchedule, draws


class ScheduledSampler(Sampler[list[tuple[int, int]]]):
    """The (row, draw) pairs of steps `start`..`stop`−1 of a schedule."""

    def __init__(self, schedule: BatchSchedule, seed: int, start: int, stop: int) -> None:
        self.schedule, self.seed, self.start, self.stop = schedule, seed, start, stop

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for step in range(self.start, self.stop):
            rows = self.schedule.batch(step).tolist()
            yield list(zip(rows, draws(self.seed, step, len(rows)), strict=True))


class Batches:
    """Iterates `(images, labels)`: float images B×3×H×W and labels B on the device.

    Args:
        loader: gives uint8 images and labels on the CPU.
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
        for images, labels in self.loader:
            yield (
                self.to_input(images.to(self.device, non_blocking=True)),
                labels.to(self.device, non_blocking=True),
            )


def train_batches(
    view: View,
    transform: nn.Module,
    to_input: nn.Module,
    schedule: BatchSchedule,
    *,
    seed: int,
    start: int,
    stop: int,
    workers: int,
    device: torch.device,
) -> Batches:
    """The training batches of steps `start`..`stop`−1, workers kept over all of them."""
    sampler = ScheduledSampler(schedule, seed, start, stop)
    return Batches(
        DataLoader(
            ImageDataset(view, transform),
            batch_sampler=sampler,
            **_workers(workers, device),
        ),
        to_input,
        device,
    )


def eval_batches(
    view: View,
    transform: nn.Module,
    to_input: nn.Module,
    *,
    batch_size: int,
    workers: int,
    device: torch.device,
) -> Batches:
    """All images of a view in order."""
    dataset = ImageDataset(view, transform)
    loader = DataLoader(dataset, batch_size=batch_size, **_workers(workers, device))
    return Batches(loader, to_input, device)


def _workers(workers: int, device: torch.device) -> dict[str, Any]:
    # The generator keeps DataLoader from drawing its workers' base seed from the global RNG: that
    # would make the run depend on the number of workers and on where it was continued.
    return {
        "num_workers": workers,
        "pin_memory": device.type == "cuda",
        "worker_init_fn": _leave_signals_to_parent,
        "generator": torch.Generator().manual_seed(0),
    }


def _leave_signals_to_parent(worker: int) -> None:
    """Ctrl-C reaches every process of the terminal; workers must outlive the step it interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
