"""The file behind a cache: whose it is, and what happens when its writing is disturbed."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from dml.core.errors import RunStopped, UserError
from dml.core.locks import exclusive
from dml.data import cache as cache_module
from dml.data.base import ImageIndex
from dml.data.cache import open_cache
from dml.data.decode import load_image
from dml.data.folder import read_folder
from dml.training.interrupts import StopRequest
from tests.data.trees import class_folders, save, truncate
from tests.killed_process import die_at


@pytest.fixture
def index(tmp_path: Path) -> ImageIndex:
    class_folders(tmp_path / "images", classes=4, per_class=3)
    return read_folder(tmp_path / "images")


def test_file_belongs_to_dataset_size_and_listing(index: ImageIndex, tmp_path: Path):
    names = {open_cache(index, side, tmp_path).path for side in (None, 20, 24)}
    assert len(names) == 3
    save(index.images[3], seed=99, size=(50, 30))
    replaced = open_cache(index, 20, tmp_path)
    assert replaced.path not in names
    assert tuple(replaced[3].shape) == (3, 20, 33)
    fewer = read_folder(index.images[0].parents[1])
    fewer.images.pop()
    short = ImageIndex("folder", fewer.images, fewer.labels[:-1], fewer.roles[:-1])
    assert open_cache(short, 20, tmp_path).path not in {*names, replaced.path}


def test_dataset_that_moved_is_decoded_anew(index: ImageIndex, tmp_path: Path):
    before = open_cache(index, 20, tmp_path).path
    (tmp_path / "images").rename(tmp_path / "elsewhere")
    assert open_cache(read_folder(tmp_path / "elsewhere"), 20, tmp_path).path != before


def raw(path: Path, level: int) -> None:
    """An image file whose size does not depend on what it shows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"P6 4 4 255\n" + bytes([level]) * 48)


def test_tables_of_the_same_names_and_sizes_do_not_share_pixels(tmp_path: Path):
    levels = []
    for number, folder in enumerate(("morning", "evening")):
        for image in range(3):
            raw(tmp_path / folder / f"{image}.ppm", 100 * number + image)
        rows = [f"{folder}/{image}.ppm,{label}\n" for image, label in enumerate("abb")]
        table = tmp_path / f"{folder}.csv"
        table.write_text("".join(["path,label\n", *rows]))
        cache = open_cache(read_folder(table), None, tmp_path / ".cache")
        levels.append([int(cache[row].max()) for row in range(3)])
    assert levels == [[0, 1, 2], [100, 101, 102]]


def test_image_edited_at_the_same_size_is_decoded_anew(tmp_path: Path):
    for name in ("a/0", "b/0", "b/1"):
        raw(tmp_path / f"{name}.ppm", 1)
    index = read_folder(tmp_path)
    assert int(open_cache(index, None, tmp_path / ".cache")[0].max()) == 1
    time.sleep(0.02)  # coarser than the clock of the file system
    raw(index.images[0], 9)
    assert int(open_cache(index, None, tmp_path / ".cache")[0].max()) == 9


@pytest.mark.parametrize(
    ("number", "raised", "status"),
    [(signal.SIGINT, KeyboardInterrupt, None), (signal.SIGTERM, RunStopped, 143)],
)
def test_signal_ends_decoding_at_once_though_a_run_is_listening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raised: type, status: int | None
):
    class_folders(tmp_path / "images", classes=40, per_class=4)
    index, decoded = read_folder(tmp_path / "images"), []

    def decode(path: Path) -> Tensor:
        decoded.append(path)
        if len(decoded) == 3:
            os.kill(os.getpid(), number)
        time.sleep(0.01)
        return load_image(path)

    monkeypatch.setattr(cache_module, "load_image", decode)
    with StopRequest() as stop:
        with pytest.raises(raised) as caught:
            open_cache(index, 20, tmp_path / "cache")
        assert len(decoded) < 80
        assert getattr(caught.value, "status", None) == status
        assert not getattr(caught.value, "saved", False)
        assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".lock"]
        assert stop() is None
        os.kill(os.getpid(), number)  # from here on the run listens again
        assert stop() is not None


def test_signal_ends_waiting_for_another_writer(index: ImageIndex, tmp_path: Path):
    path = open_cache(index, 20, tmp_path).path
    path.unlink()
    held = threading.Event()

    def other_writer() -> None:
        with exclusive(path.with_suffix(".lock"), "testing"):
            held.set()
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)

    thread = threading.Thread(target=other_writer)
    thread.start()
    held.wait()
    with StopRequest(), pytest.raises(KeyboardInterrupt):
        open_cache(index, 20, tmp_path)
    assert thread.is_alive(), "it waited until the other one was done"
    thread.join()


def test_without_locks_another_writers_file_is_left_alone(
    index: ImageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = open_cache(index, 20, tmp_path).path
    path.unlink()
    other = path.with_name(f".{path.name}.abc.partial")
    other.touch()
    with monkeypatch.context() as patch:
        patch.setattr("dml.core.locks.fcntl", None)
        open_cache(index, 20, tmp_path)
    assert other.exists()
    path.unlink()
    open_cache(index, 20, tmp_path)
    assert not other.exists()


def test_place_that_cannot_be_written_is_explained(index: ImageIndex, tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"data\.cache: cannot write .*data\.root.*cache=null"):
        open_cache(index, 20, tmp_path / "file" / ".cache")


def test_nothing_is_kept_of_a_cache_whose_image_cannot_be_decoded(
    index: ImageIndex, tmp_path: Path
):
    bad = truncate(index.images[7])
    with pytest.raises(UserError, match=bad.name):
        open_cache(index, 20, tmp_path / "cache")
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".lock"]


def test_full_disk_is_explained_and_leaves_nothing(
    index: ImageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(point: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module, "fault_point", full)
    with pytest.raises(UserError, match=r"data\.cache: .* No space left on device; make room"):
        open_cache(index, 20, tmp_path / "cache")
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".lock"]


@pytest.mark.parametrize("point", ["cache_image:5", "before_rename"])
def test_killed_writer_leaves_nothing_that_is_read(index: ImageIndex, tmp_path: Path, point: str):
    folder = tmp_path / "cache"
    assert die_at(point, open_cache, index, 20, folder) == -9
    left = sorted(file.suffix for file in folder.iterdir())
    assert left == [".lock", ".partial"]
    cache = open_cache(index, 20, folder)
    assert tuple(cache[11].shape) == (3, 20, 26)
    assert sorted(file.suffix for file in folder.iterdir()) == [".lock", ".pixels"]


def slow_and_counted(log: Path) -> Callable[[Path], Tensor]:
    def decode(path: Path) -> Tensor:
        with open(log, "a") as file:
            file.write("x")
        time.sleep(0.05)
        return load_image(path)

    return decode


def open_in_process(index: ImageIndex, folder: Path, log: Path, results: object) -> None:
    cache_module.load_image = slow_and_counted(log)
    cache = open_cache(index, 20, folder)
    results.put(int(cache.pixels.long().sum()))


def test_second_process_waits_for_the_one_that_writes(index: ImageIndex, tmp_path: Path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    log, folder = tmp_path / "log", tmp_path / "cache"
    arguments = (index, folder, log, results)
    processes = [context.Process(target=open_in_process, args=arguments) for _ in range(3)]
    processes[0].start()
    while not (log.exists() and log.stat().st_size):  # the first is in the middle of writing
        time.sleep(0.01)
    for process in processes[1:]:
        process.start()
    sums = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert log.stat().st_size == len(index.images), "each image was decoded once, by one process"
    expected = int(open_cache(index, 20, tmp_path / "other").pixels.long().sum())
    assert sums == [expected] * 3
