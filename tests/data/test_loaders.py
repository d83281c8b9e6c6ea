import atexit
import gc
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from dml.core import waits
from dml.core.waits import Wait
from dml.data import loaders
from dml.data.image_dataset import ImageDataset
from dml.data.image_index import ImageIndex, Subset
from dml.data.loaders import (
    DEAD_WORKER,
    LoaderOptions,
    eval_batches,
    iterate,
    pool_batches,
    prepare_process,
    resolve_eval_batch_size,
    train_batches,
)
from dml.data.samplers import RandomBatches, augmentation_seeds
from dml.data.transforms import ToInput, eval_transform, train_transform

CPU = torch.device("cpu")
TO_INPUT = ToInput((0, 0, 0), (1, 1, 1), scale=255)


@pytest.fixture(scope="module")
def view() -> Subset:
    """Rows that are not the first ones, of classes whose numbers have gaps."""
    images = np.random.default_rng(0).integers(0, 256, (60, 12, 12, 3), dtype=np.uint8)
    labels = np.arange(60) % 6 * 3 + 1
    index = ImageIndex("x", images, labels, np.where(labels == 4, "unused", "train"))
    subset = index.subset("train")
    return Subset(index, subset.rows[7:47])


def train(
    view: Subset, start: int, stop: int, workers: int = 0, seed: int = 1, **ranks: int
) -> list[Tensor]:
    transform = train_transform("random_resized_crop", 6)
    options = LoaderOptions(TO_INPUT, CPU, workers, **ranks)
    schedule = RandomBatches(view.labels, 8, seed=1)
    batches = train_batches(view, transform, options, schedule, seed=seed, start=start, stop=stop)
    assert len(batches) == stop - start
    return [images for images, _ in batches]


def test_augmentations_follow_the_seed(view: Subset):
    """The images of a step are those of its schedule; only their crops differ."""
    first, same, other = (train(view, 0, 2, seed=seed) for seed in (1, 1, 2))
    assert all(map(torch.equal, first, same))
    assert not any(map(torch.equal, first, other))


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
    options = LoaderOptions(TO_INPUT, CPU, workers)
    batches = eval_batches(view, eval_transform(None), options, batch_size=16)
    images, labels = zip(*batches, strict=True)
    assert [len(part) for part in labels] == [16, 16, 8]
    assert torch.cat(labels).tolist() == view.labels.tolist()
    expected = torch.from_numpy(view.index.images[view.rows]).permute(0, 3, 1, 2).float()
    assert torch.equal(torch.cat(images), expected)


def test_ranks_share_the_batches_of_the_undivided_run(view: Subset):
    whole = train(view, 2, 5)
    parts = [train(view, 2, 5, rank=rank, world_size=4) for rank in range(4)]
    for expected, *shares in zip(whole, *parts, strict=True):
        assert torch.equal(torch.cat(shares), expected)


def test_ranks_share_evaluation_without_gap_or_overlap(view: Subset):
    labels = []
    for rank in range(3):
        options = LoaderOptions(TO_INPUT, CPU, rank=rank, world_size=3)
        for _, part in eval_batches(view, eval_transform(None), options, batch_size=5):
            labels += part.tolist()
    assert labels == view.labels.tolist()


def read_pool(view: Subset, rank: int = 0, world_size: int = 1, number: int = 4):
    """Images and labels of a pool of three images of each class, in batches of at most four."""
    options = LoaderOptions(TO_INPUT, CPU, rank=rank, world_size=world_size)
    transform = train_transform("random_crop", None, padding=2)
    return list(pool_batches(view, transform, options, 1, 4, 3, number))


def test_a_pool_is_class_by_class_in_batches_of_equal_sizes(view: Subset):
    images, labels = zip(*read_pool(view), strict=True)
    assert [len(batch) for batch in labels] == [4, 4, 4, 3]  # 15 images in the fewest batches
    assert torch.cat(labels).tolist() == [label for label in range(5) for _ in range(3)]
    again, other = (torch.cat([x for x, _ in read_pool(view, number=n)]) for n in (4, 5))
    assert torch.equal(torch.cat(images), again)
    assert not torch.equal(again, other)


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_each_batch_of_a_pool(view: Subset, ranks):
    whole = read_pool(view)
    parts = [read_pool(view, rank, ranks) for rank in range(ranks)]
    for (images, labels), *shares in zip(whole, *parts, strict=True):
        assert torch.equal(torch.cat([some for some, _ in shares]), images)
        assert torch.equal(torch.cat([some for _, some in shares]), labels)
        assert min(len(some) for _, some in shares) > 0


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
    view: Subset, transform: nn.Module
):
    dataset = ImageDataset(view, transform)
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


@pytest.mark.parametrize(
    ("cores", "processes", "number"), [(3, 2, 1), (32, 2, 8), (7, 2, 3), (1, 4, 1)]
)
def test_processes_of_a_machine_share_its_cores(monkeypatch, cores, processes, number):
    monkeypatch.setattr(loaders, "available_cores", lambda: cores)
    files = ImageIndex("x", [Path("a.jpg")], np.zeros(1, int), ["train"])
    cuda = torch.device("cuda")
    assert loaders.resolve_workers("auto", files, cuda, processes) == number
    assert loaders.resolve_workers(5, files, cuda, processes) == 5
    assert loaders.resolve_workers("auto", files, CPU, processes) == 0
    in_memory = replace(files, images=np.zeros((1, 2, 2, 3), np.uint8))
    assert loaders.resolve_workers("auto", in_memory, cuda, processes) == 0


class Slow(Dataset):
    """Rows whose last one takes a minute, in which a worker holds no lock of torch's loader."""

    def __len__(self):
        return 4

    def __getitem__(self, row):
        time.sleep(60 * (row == 3))
        return row


def test_a_death_is_raised_where_the_next_batch_is_awaited():
    gc.collect()
    others = set(multiprocessing.active_children())
    batches = iterate(DataLoader(Slow(), num_workers=1, prefetch_factor=4))
    assert next(batches).item() == 0
    time.sleep(1)
    (worker,) = set(multiprocessing.active_children()) - others
    os.kill(worker.pid, signal.SIGKILL)
    time.sleep(1)  # in which any instruction could be interrupted
    with pytest.raises(RuntimeError) as error:
        list(batches)
    assert str(error.value).startswith(DEAD_WORKER)


class Awaited(Dataset):
    """Rows that come once somebody has waited for them."""

    def __init__(self, is_waited_for):
        self.is_waited_for = is_waited_for

    def __len__(self):
        return 4

    def __getitem__(self, row):
        self.is_waited_for.acquire()
        return row


def test_each_batch_is_waited_for_anew(monkeypatch):
    """Not all batches together: a slow disk is no silent process."""
    monkeypatch.setattr(loaders, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(waits, "LIMIT_SECONDS", 10)  # counted in looks, not by a clock
    is_waited_for = multiprocessing.get_context("fork").Semaphore(0)

    class Release(Wait):
        def check(self, seconds):
            if round(seconds / loaders.POLL_SECONDS) == 3:
                is_waited_for.release()
            super().check(seconds)

    monkeypatch.setattr(loaders, "Wait", Release)
    loader = DataLoader(Awaited(is_waited_for), num_workers=1, multiprocessing_context="fork")
    assert [batch.item() for batch in iterate(loader)] == [0, 1, 2, 3]


def test_the_end_of_python_waits_for_no_process():
    """Of a loader that something keeps, as `sys.last_traceback` does in an interactive session."""
    child = os.fork()
    if child == 0:
        try:
            batches = iterate(DataLoader(Slow(), num_workers=1, worker_init_fn=prepare_process))
            next(batches)
            atexit._run_exitfuncs()
        finally:
            os._exit(0)
    end = time.monotonic() + 30
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        assert time.monotonic() < end
        time.sleep(0.1)
