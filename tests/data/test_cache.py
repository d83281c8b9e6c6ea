import errno
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from dml.core.errors import UserError
from dml.data import cache as cache_module
from dml.data.cache import PixelCache, open_image_source
from dml.data.decode import DECODER, load_image
from dml.data.image_index import ImageIndex, hash_listing
from dml.data.loaders import LoaderOptions, eval_batches, train_batches
from dml.data.preparation.image_check import exclude_undecodable
from dml.data.readers.folder import read_folder
from dml.data.samplers import RandomBatches
from dml.data.transforms import eval_transform, train_transform
from tests.data.trees import class_folders, save
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


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_deliver_the_same_batches_from_every_source(photos, tmp_path, workers):
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


def test_second_opening_reads_the_file_and_decodes_nothing(index, tmp_path, monkeypatch):
    first = open_image_source(index, 20, tmp_path / "list.csv")
    assert isinstance(first, PixelCache)
    monkeypatch.setattr(cache_module, "load_image", None)
    again = open_image_source(index, 20, tmp_path)
    assert first.path == again.path
    assert first.path.parent == tmp_path / ".cache"
    assert torch.equal(first.pixels, again.pixels)
    assert tuple(again[0].shape) == (3, 20, 26)


@pytest.mark.parametrize("suffix", [".pixels", ".npy"])
def test_damaged_file_is_named_and_can_be_deleted(index: ImageIndex, tmp_path: Path, suffix: str):
    path = open_image_source(index, 20, tmp_path).path
    damaged = path.with_suffix(suffix)
    damaged.write_bytes(damaged.read_bytes()[:-100])
    with pytest.raises(UserError, match=rf"{path.name} is damaged; delete it"):
        open_image_source(index, 20, tmp_path)
    path.unlink()
    assert tuple(open_image_source(index, 20, tmp_path)[0].shape) == (3, 20, 26)


def raw(path: Path, level: int) -> None:
    """An image file whose size does not depend on what it shows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"P6 4 4 255\n" + bytes([level]) * 48)


def test_image_edited_at_the_same_size_is_decoded_anew(tmp_path: Path):
    for name in ("a/0", "b/0", "b/1"):
        raw(tmp_path / f"{name}.ppm", 1)
    index = read_folder(tmp_path)
    assert int(open_image_source(index, "full", tmp_path)[0].max()) == 1
    time.sleep(0.02)  # coarser than the clock of the file system
    raw(index.images[0], 9)
    assert int(open_image_source(index, "full", tmp_path)[0].max()) == 9


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.EACCES, "let the owner of the folder train once"),
        (errno.EROFS, "let the owner of the folder train once"),
        (errno.ENOSPC, "free disk space"),
        (errno.EDQUOT, "free disk space"),
    ],
)
def test_the_advice_fits_the_reason(index: ImageIndex, tmp_path: Path, monkeypatch, code, advice):
    def refuse(*arguments):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(cache_module, "wait_for_lock", refuse)
    with pytest.raises(UserError) as caught:
        open_image_source(index, "full", tmp_path)
    assert advice in str(caught.value)
    assert "set data.root" in str(caught.value)


def test_place_that_cannot_be_written_is_explained(index: ImageIndex, tmp_path: Path):
    (tmp_path / ".cache").touch()
    with pytest.raises(UserError, match=r"data\.cache: cannot write .*data\.root.*cache=null"):
        open_image_source(index, 20, tmp_path)


@pytest.mark.parametrize("point", ["cache_image:5", "before_rename:1", "before_rename:2"])
def test_killed_writer_leaves_nothing_that_is_read(index: ImageIndex, tmp_path: Path, point: str):
    assert die_at(point, open_image_source, index, 20, tmp_path) == -9
    assert not list(tmp_path.glob(".cache/*.npy"))
    assert tuple(open_image_source(index, 20, tmp_path)[11].shape) == (3, 20, 26)
    left = {file.suffix for file in tmp_path.glob(".cache/*")}
    assert left - {".partial"} == {".lock", ".npy", ".pixels"}


@pytest.mark.parametrize("shape", [(1500, 1), (1, 1500), (700, 40), (40, 700)])
def test_thin_images_take_no_more_in_a_cache_than_their_pixels_and_are_tested_alike(
    tmp_path: Path, shape: tuple[int, int]
):
    width, height = shape
    for number in range(4):
        save(tmp_path / str(number % 2) / f"{number}.png", number, "RGB", (width, height))
    photos = read_folder(tmp_path)
    source = open_image_source(photos, 64, tmp_path)
    assert len(source.pixels) == 4 * 3 * width * height
    test = eval_transform(56, resize=64)
    for row in range(4):
        assert torch.equal(test(source[row]), test(load_image(photos.images[row])))


def test_a_thin_image_that_becomes_smaller_is_cached_at_the_side(tmp_path: Path):
    for number in range(4):
        save(tmp_path / str(number % 2) / f"{number}.png", number, "RGB", (1200, 100))
    photos = read_folder(tmp_path)
    source = open_image_source(photos, 64, tmp_path)
    assert tuple(source[0].shape) == (3, 64, 768)
    test = eval_transform(56, resize=64)
    difference = test(source[0]).int() - test(load_image(photos.images[0])).int()
    assert difference.abs().max() <= 1


def test_a_cache_is_of_one_orientation(tmp_path: Path):
    turned = Image.Exif()
    turned[0x0112] = 6  # by 90 degrees
    for number in range(4):
        path = tmp_path / "images" / str(number % 2) / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 4)).save(path, exif=turned)
    index = read_folder(tmp_path / "images")
    for applied in (False, True, False):
        oriented = replace(index, apply_orientation=applied)
        expected = load_image(oriented.images[0], applied)
        source = open_image_source(oriented, "full", tmp_path)
        assert torch.equal(source[0], expected)
        assert tuple(expected.shape[1:]) == ((8, 4) if applied else (4, 8))


def transparent_images(root: Path) -> ImageIndex:
    for number in range(4):
        path = root / str(number % 2) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        opacity = 0 if number == 0 else 255  # a single one is enough
        Image.new("RGBA", (4, 4), (9, 9, 9, opacity)).save(path)
    return read_folder(root)


@pytest.mark.parametrize("checked", [False, True])
def test_a_cache_of_transparent_images_is_of_one_background(tmp_path: Path, checked: bool):
    index = transparent_images(tmp_path / "images")
    if checked:
        index = exclude_undecodable(index, False, tmp_path)
    black = replace(index, background="black")
    paths = set()
    for one, level in ((index, 255), (black, 0), (index, 255)):
        source = open_image_source(one, "full", tmp_path)
        assert source[0].unique().tolist() == [level]
        paths.add(source.path)
    assert len(paths) == 2


def test_a_cache_of_opaque_images_holds_for_every_background(index: ImageIndex, tmp_path: Path):
    """Without a check the names of the files tell it, which may be wrong."""
    checked = exclude_undecodable(index, False, tmp_path)
    assert checked.transparent == 0
    paths = []
    for one in (index, checked):
        for background in ("white", "black"):
            paths.append(open_image_source(replace(one, background=background), 20, tmp_path).path)
    of_index, of_black, *of_checked = (path.name for path in paths)
    digest = hash_listing(index.files, DECODER, 20, False)
    assert of_index == f"images-20-{digest}.pixels"
    assert of_checked == [of_index, of_index]
    assert of_black != of_index


def test_a_cache_of_a_file_with_the_name_of_another_format(tmp_path: Path):
    """As a PNG that was saved as `.jpg`, among images that no check has decoded."""
    (tmp_path / "images").mkdir()
    path = tmp_path / "images" / "a.jpg"
    Image.new("RGBA", (4, 4), (9, 9, 9, 0)).save(path, "PNG")
    index = ImageIndex("x", [path] * 4, [0, 0, 1, 1], ["train"] * 2 + ["test"] * 2)
    for background, level in (("white", 255), ("black", 0), ("white", 255)):
        one = replace(index, background=background)
        assert open_image_source(one, "full", tmp_path)[0].unique().tolist() == [level]
