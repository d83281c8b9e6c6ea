"""Batches on the device: by a schedule of steps for training, in order for evaluation."""

from __future__ import annotations

import atexit
import errno
import math
import multiprocessing
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, default_collate, get_worker_info

from dml.core.errors import RunStopped, UserError
from dml.core.processor import available_cores
from dml.core.signals import SIGNALS
from dml.core.waits import NoAnswerError, Wait, print_note
from dml.data.image_dataset import ImageDataset, ImageSource
from dml.data.image_index import ImageIndex, Subset
from dml.data.readers.features import FeatureDataset
from dml.data.samplers import BatchSchedule, augmentation_seeds, class_pool

MOST_WORKERS = 8  # of `auto`: more need memory and files, and often wait for the same disk
# Beginnings of torch's errors after the death of a loading process, which have no specific class.
DEAD_WORKER = ("DataLoader worker", "Pin memory thread")
TIMED_OUT = "DataLoader timed out"  # beginning of torch's error, which has no specific class either
POLL_SECONDS = 1  # between two looks at what a missing batch may wait for
KEPT_SECONDS = 5  # the same; for workers that are kept to begin another evaluation
_processes: WeakKeyDictionary[DataLoader[Any], list[BaseProcess]] = WeakKeyDictionary()


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
    return max(1, min(MOST_WORKERS, available_cores() // processes))


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


def iterate(loader: DataLoader[Any], is_shared: bool = False) -> Iterator[Any]:
    """Yields the batches of a loader.

    Args:
        loader: with a `timeout` if it has workers.
        is_shared: whether other processes train the same model, which must stop at the same step.

    Raises:
        RuntimeError: a worker died; the message begins with an entry of `DEAD_WORKER`. Or workers
            that were kept do not begin anew; it begins with `TIMED_OUT`.
        RunStopped: this process is asked to stop while it waits for a batch.
        NoAnswerError: the workers are silent for too long.
    """
    with _Watch(loader, is_shared) as watch:
        try:
            batches = watch.call(_start, loader)
            while True:
                yield watch.call(_next_batch, batches)
        except StopIteration:
            return
        except (ConnectionError, EOFError) as error:
            raise RuntimeError(f"{DEAD_WORKER[0]} exited before it sent its batch") from error
        except BaseException as error:
            is_continued = isinstance(error, GeneratorExit) and loader.persistent_workers
            if not is_continued:  # torch would wait for each one, and for long if one is stopped
                end_processes(loader)
            raise


def _clear_half_made(error: OSError) -> None:
    """Frees torch's iterator that could not be made, whose `__del__` would print a traceback."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    try:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = error.__context__ = None
    finally:
        sys.unraisablehook = hook


class _Watch:
    """Watches a thread that waits for the workers of a loader, from another thread.

    The `timeout` of a loader is not enough: a batch is a message that names a file, for which the
    receiver then asks its worker, and waits for the answer of a stopped one forever. The end of the
    worker ends that wait.

    Args:
        loader: with workers, else this does nothing.
        is_shared: see `iterate`.
    """

    def __init__(self, loader: DataLoader[Any], is_shared: bool) -> None:
        self._loader, self._is_shared = loader, is_shared
        self._since: float | None = None  # when the present wait began
        self._reason: BaseException | None = None  # why it must end
        self._is_over = threading.Event()

    def __enter__(self) -> _Watch:
        if self._loader.num_workers:
            threading.Thread(target=self._run, name="loader", daemon=True).start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._is_over.set()

    def call(self, wait: Callable[[Any], Any], argument: Any) -> Any:
        """Returns `wait(argument)`, or raises why the wait must end; torch's timeouts continue."""
        self._since = time.monotonic()
        try:
            while True:
                try:
                    return wait(argument)
                except _TimedOut:
                    if self._reason is not None:
                        raise self._reason from None
        except Exception:
            if self._reason is not None:
                raise self._reason from None
            raise
        finally:
            self._since = None

    def _run(self) -> None:
        """Ends the workers once the wait must end."""
        wait = Wait(partial(_describe_silence, self._loader), stops=not self._is_shared)
        since, silent = None, 0.0
        while not self._is_over.wait(POLL_SECONDS):
            if self._since != since:
                since, silent = self._since, 0.0
            if since is None:
                continue
            silent += POLL_SECONDS  # not by the clock, which goes on while Ctrl-Z stops us all
            try:
                wait.check(silent)
            except (RunStopped, NoAnswerError) as reason:
                self._reason = reason
                end_processes(self._loader)
                return


class _TimedOut(Exception):
    """The `timeout` of a loader is over, which can be asked again."""


def _next_batch(batches: Iterator[Any]) -> Any:
    """Returns the next batch.

    Raises:
        _TimedOut: there is none yet.
    """
    try:
        return next(batches)
    except RuntimeError as error:
        if str(error).startswith(TIMED_OUT):
            raise _TimedOut from error
        raise


def _start(loader: DataLoader[Any]) -> Iterator[Any]:
    """Returns the iterator of a loader, and remembers its processes."""
    others = {*multiprocessing.active_children()} if loader.num_workers else set()
    handler = signal.getsignal(signal.SIGCHLD)
    try:
        batches = iter(loader)
    except OSError as error:  # no further process, file or semaphore
        for process in {*multiprocessing.active_children()} - others:
            process.kill()  # else torch waits five seconds for each one
        _clear_half_made(error)
        if error.errno == errno.ENOSPC:  # for semaphores
            raise RuntimeError("shared memory is full") from None
        raise OSError(error.errno, error.strerror) from None
    if signal.getsignal(signal.SIGCHLD) != handler:
        # Torch's handler would raise between any two instructions, where the error may leave a lock
        # acquired or prevent a checkpoint. Without it, waiting for a batch ends within 5 seconds.
        signal.signal(signal.SIGCHLD, handler)
    if loader.num_workers:
        started = [process for process in multiprocessing.active_children() if process.daemon]
        if started := [process for process in started if process not in others]:
            _processes[loader] = started  # else they are kept from the iteration before
    return batches


def _describe_silence(loader: DataLoader[Any]) -> tuple[str, str]:
    """Returns which workers a batch may wait for, and the remedy."""
    processes = [process for process in _processes.get(loader, []) if process.is_alive()]
    stopped = [process for process in processes if _is_stopped(process)]
    numbers = ", ".join(str(process.pid) for process in stopped or processes)
    who = f"loading process {numbers} on {socket.gethostname()}"
    if stopped:
        remedy = f"it is stopped: kill -CONT {stopped[0].pid} continues it"
    else:
        remedy = "the disk of the images may hang"
    return (
        f"data.workers: no batch from {who}",
        f"{remedy}; data.workers=0 loads without other processes",
    )


def _is_stopped(process: BaseProcess) -> bool:
    """Returns whether a process is stopped (SIGSTOP), where the system tells it."""
    try:
        status = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] == ["T"]


def end_processes(*loaders: DataLoader[Any]) -> None:
    """Kills the workers of loaders, by default of all: they have no state, and may hang."""
    for loader in loaders or [*_processes]:
        for process in _processes.pop(loader, []):
            process.kill()


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
        create_loader: its result yields uint8 images and labels.
        to_input: converts uint8 batches to floats, on the device.
        device: device of the result.
        is_shared: whether other processes train the same model.
    """

    def __init__(
        self,
        create_loader: Callable[[], DataLoader[tuple[Tensor, int]]],
        to_input: nn.Module,
        device: torch.device,
        is_shared: bool = False,
    ) -> None:
        self._create_loader, self.loader = create_loader, create_loader()
        self.is_shared = is_shared
        self.to_input = to_input.to(device)
        self.device = device

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        try:
            for images, labels in self._load():
                yield (
                    self.to_input(images.to(self.device, non_blocking=True)),
                    labels.to(self.device, non_blocking=True),
                )
        except UserError as error:
            # A worker's exception arrives with its traceback in the message; the last line is ours.
            line = str(error).strip().splitlines()[-1]
            raise UserError(line.partition("UserError: ")[2] or line) from None

    def _load(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields the batches of the loader; replaces kept workers that do not begin anew."""
        try:
            yield from iterate(self.loader, self.is_shared)
        except RuntimeError as error:
            if not str(error).startswith(TIMED_OUT):
                raise
            subject, remedy = _describe_silence(self.loader)
            print_note(f"{subject} for {KEPT_SECONDS} s; others were started; {remedy}")
            end_processes(self.loader)
            self.loader = self._create_loader()
            yield from iterate(self.loader, self.is_shared)


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
        keep_workers = keep_workers and self.workers > 0
        timeout = KEPT_SECONDS if keep_workers else POLL_SECONDS
        create_loader = partial(
            DataLoader,
            FeatureDataset(subset) if features else ImageDataset(subset, transform, self.source),
            num_workers=self.workers,
            persistent_workers=keep_workers,
            pin_memory=self.device.type == "cuda",
            collate_fn=collate,
            timeout=timeout if self.workers else 0,
            worker_init_fn=prepare_process,
            # The generator keeps DataLoader from drawing its workers' base seed from the global
            # RNG: that would make the run depend on the number of workers and on where it was
            # continued.
            generator=torch.Generator().manual_seed(0),
            **sampling,
        )
        return Batches(create_loader, self.to_input, self.device, self.world_size > 1)


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
    """Stacks images …×3×H×W in the memory order of the decoders: channels innermost.

    A worker moves them to shared memory here: an error of the thread that sends them would only be
    printed, and the batch awaited forever.
    """
    images, labels = _stack(items)
    if get_worker_info() is not None:
        images.share_memory_()
        labels.share_memory_()
    return images, labels


def _stack(items: list[tuple[Tensor, int]] | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    if isinstance(items, tuple):  # already a batch
        return items
    sizes = {tuple(image.shape[1:]) for image, _ in items}
    if len(sizes) > 1:
        raise UserError(
            f"transform.size: images of a batch differ in size ({min(sizes)}, {max(sizes)}); set a "
            f"number of pixels; dml embed takes them one by one with --batch-size 1"
        )
    images, labels = default_collate([(image.movedim(-3, -1), label) for image, label in items])
    return images.movedim(-1, -3), labels
