import errno
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from PIL import Image
from torch import Tensor, nn

from dml.core.errors import RunStopped, UserError
from dml.core.locks import wait_for_lock
from dml.data import cache as cache_module
from dml.data.cache import PixelCache, open_cache, open_image_source
from dml.data.decode import load_image
from dml.data.folder import read_folder
from dml.data.image_dataset import Decoder, ImageDataset
from dml.data.image_index import ImageIndex
from dml.data.loaders import LoaderOptions, eval_batches, train_batches
from dml.data.samplers import RandomBatches
from dml.data.transforms import eval_transform, train_transform
from dml.training.interrupts import StopRequest
from tests.data.trees import class_folders, photo, save, truncate
from tests.killed_process import die_at

CPU = torch.device("cpu")
MLRC = train_transform("random_resized_crop", 227, resize=256, scale=(0.16, 1), ratio=(0.75, 1.33))


@pytest.fixture
def index(tmp_path: Path) -> ImageIndex:
    class_folders(tmp_path / "images", classes=4, per_class=3)
    return read_folder(tmp_path / "images")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> ImageIndex:
    """Photos of ordinary and of odd sizes, in every color mode."""
    root = tmp_path_factory.mktemp("photos")
    shapes = [(500, 375), (300, 400), (256, 256), (180, 240), (700, 260), (255, 257)]
    for number, size in enumerate(shapes):
        mode = ["RGB", "L", "CMYK"][number % 3]
        save(root / str(number % 2) / f"{number}.jpg", number, mode, size)
    return read_folder(root)


def test_full_cache_holds_what_the_decoder_gives(photos: ImageIndex, tmp_path: Path):
    cache = open_cache(photos, None, tmp_path)
    for row, path in enumerate(photos.images):
        assert torch.equal(cache[row], load_image(path))


@pytest.mark.parametrize(
    "transform", [MLRC, eval_transform(227, resize=256)], ids=["train", "test"]
)
def test_mlrc_sees_the_same_pixels_with_and_without_the_256_cache(
    photos: ImageIndex, tmp_path: Path, transform: nn.Module
):
    view = photos.subset("train", "test")
    exact = ImageDataset(view, transform, Decoder(photos.images))
    cached = ImageDataset(view, transform, open_cache(photos, 256, tmp_path))
    for row in range(len(view)):
        for draw in range(6):
            assert torch.equal(exact[(row, draw)][0], cached[(row, draw)][0])  # tolerance: none


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_deliver_the_same_batches_from_every_source(
    photos: ImageIndex, tmp_path: Path, workers: int
):
    view = photos.subset("train", "test")

    def everything(cache: int | str | None) -> list[Tensor]:
        source = open_image_source(photos, cache, tmp_path)
        schedule = RandomBatches(view.labels, 2, seed=1)
        options = LoaderOptions(nn.Identity(), CPU, workers, source)
        train = train_batches(view, MLRC, options, schedule, seed=5, start=1, stop=5)
        test = eval_batches(view, eval_transform(227, resize=256), options, batch_size=4)
        return [images for batches in (train, test) for images, _ in batches]

    decoded = everything(None)
    assert len(decoded) == 6
    for cache in (256, "full"):
        assert all(map(torch.equal, everything(cache), decoded))


def test_second_opening_reads_the_file_and_decodes_nothing(
    index: ImageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = open_cache(index, 20, tmp_path)
    monkeypatch.setattr(cache_module, "load_image", None)
    again = open_cache(index, 20, tmp_path)
    assert first.path == again.path
    assert torch.equal(first.pixels, again.pixels)
    assert tuple(again[0].shape) == (3, 20, 26)


def test_damaged_file_is_named(index: ImageIndex, tmp_path: Path):
    path = open_cache(index, 20, tmp_path).path
    content = path.read_bytes()
    for damaged in (content[:-100], b"", content[1:]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=rf"{path.name} is damaged; delete it"):
            open_cache(index, 20, tmp_path)


def test_workers_map_the_file_again_instead_of_copying_it(index: ImageIndex, tmp_path: Path):
    cache = open_cache(index, 20, tmp_path)
    sent = pickle.dumps(cache)
    assert len(sent) < 1000
    assert torch.equal(pickle.loads(sent)[4], cache[4])


def test_datasets_can_be_sent_to_spawned_workers(photos: ImageIndex, tmp_path: Path):
    view = photos.subset("train", "test")
    for source in (None, open_cache(photos, 256, tmp_path)):
        dataset = ImageDataset(view, MLRC, source)
        sent = pickle.loads(pickle.dumps(dataset))
        assert torch.equal(sent[(1, 5)][0], dataset[(1, 5)][0])


def test_images_in_memory_need_no_file(tmp_path: Path):
    images = np.zeros((4, 5, 6, 3), np.uint8)
    index = ImageIndex("x", images, np.arange(4), np.full(4, "train"))
    assert open_image_source(index, "full", tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_source_follows_the_options(index: ImageIndex, tmp_path: Path):
    assert open_image_source(index, None, tmp_path) is None
    source = open_image_source(index, 20, tmp_path / "list.csv")
    assert isinstance(source, PixelCache)
    assert source.path.parent == tmp_path / ".cache"
    assert tuple(source[0].shape) == (3, 20, 26)
    for value in ("ful", 0, -3):
        with pytest.raises(UserError, match=r"data\.cache: "):
            open_image_source(index, value, tmp_path)


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


def test_images_upright_are_other_pixels(tmp_path: Path):
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for item in range(2):
            photo(item).save(tmp_path / name / f"{item}.jpg", exif=exif)
    stored = read_folder(tmp_path)
    upright = replace(stored, apply_orientation=True)
    for index, shape in ((stored, (3, 30, 40)), (upright, (3, 40, 30))):
        assert tuple(open_cache(index, None, tmp_path / ".cache")[0].shape) == shape
        dataset = ImageDataset(index.subset("train", "test"), nn.Identity())
        assert tuple(dataset[0][0].shape) == shape


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

    def decode(path: Path, apply_orientation: bool) -> Tensor:
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
        with wait_for_lock(path.with_suffix(".lock"), "testing"):
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


def without_locks(*arguments: object, **options: object) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def test_without_locks_another_writers_file_is_left_alone(
    index: ImageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = open_cache(index, 20, tmp_path).path
    path.unlink()
    other = path.with_name(f".{path.name}.abc.partial")
    other.touch()
    with monkeypatch.context() as patch:
        patch.setattr(FileLock, "acquire", without_locks)
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
    def decode(path: Path, apply_orientation: bool) -> Tensor:
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
