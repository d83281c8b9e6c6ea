import errno
import io
import os
import shutil
import tarfile
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dml.core import regular_files
from dml.core.errors import UserError
from dml.data import decode
from dml.data.decode import decode_image
from dml.data.image_index import ImageIndex, describe_images
from dml.data.preparation import image_check
from dml.data.preparation.image_check import (
    count_transparent,
    exclude_undecodable,
    find_undecodable,
    inspect_images,
)
from dml.data.readers.folder import read_folder
from tests.data.trees import class_folders, save, truncate
from tests.killed_process import KILLED, die_at


@pytest.fixture
def index(tmp_path: Path) -> ImageIndex:
    return read_folder(class_folders(tmp_path / "birds", classes=4, per_class=3))


@pytest.mark.promise(
    "guides/own_images.md",
    "images cannot be decoded: all of them are listed, a line each, with the option that leaves "
    "them out",
)
def test_all_undecodable_images_are_listed_with_the_option_that_skips_them(index, tmp_path):
    for row in (2, 7):
        truncate(index.images[row])
    with pytest.raises(UserError) as error:
        exclude_undecodable(index, False, tmp_path / "cache")
    lines = str(error.value).splitlines()
    assert str(index.images[2]) in lines[0]
    assert str(index.images[7]) in lines[1]
    assert lines[2].startswith("data: 2 of 12 images of birds cannot be decoded")
    assert "data.skip_corrupt=true" in lines[2]


@pytest.mark.promise(
    "guides/own_images.md",
    "damaged images are left out by `data.skip_corrupt=true`: a note counts them and names the "
    "first three",
)
def test_skipped_images_leave_contiguous_labels(index: ImageIndex, tmp_path: Path):
    for row in (3, 4, 5, 11):
        truncate(index.images[row])
    kept = exclude_undecodable(index, True, tmp_path / "cache")
    assert kept.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert kept.skipped == 4
    (note,) = describe_images(kept)
    assert note.startswith("data: 4 of 12 images cannot be decoded and are left out (data.skip_co")
    assert note.endswith(f"{index.images[3]}, {index.images[4]}, {index.images[5]}")
    assert len(kept.images) == len(kept.roles) == 8
    assert kept.class_names == ("class_0", "class_2", "class_3")


def forbid_decoding(monkeypatch) -> None:
    monkeypatch.setattr(image_check, "decode_image", None)


def test_unchanged_files_are_decoded_once(index, tmp_path, monkeypatch):
    truncate(index.images[7])
    first = exclude_undecodable(index, True, tmp_path / "cache")
    with monkeypatch.context() as patch:
        forbid_decoding(patch)
        again = exclude_undecodable(index, True, tmp_path / "cache")
        assert (again.images, again.content) == (first.images, first.content)
        save(index.images[7], 1)
        with pytest.raises(TypeError):
            exclude_undecodable(index, True, tmp_path / "cache")
    assert exclude_undecodable(index, True, tmp_path / "cache").skipped == 0


@pytest.mark.parametrize("reads", [0, 1])
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.EMFILE])
def test_an_image_that_could_not_be_read_is_read_again(index, tmp_path, monkeypatch, number, reads):
    """As on a disk that did not answer: the first time, or only when the image was decoded."""
    calls = []
    open_file = regular_files.open_regular

    def fail(path, **options):
        if path == index.images[7]:
            calls.append(path)
            if len(calls) > reads:
                raise OSError(number, os.strerror(number), str(path))
        return open_file(path, **options)

    with monkeypatch.context() as patch:
        for module in (decode, image_check):
            patch.setattr(module, "open_regular", fail)
        with pytest.raises(UserError, match=os.strerror(number)):
            exclude_undecodable(index, False, tmp_path / "cache")
    assert exclude_undecodable(index, False, tmp_path / "cache").skipped == 0


def test_a_missing_library_is_looked_for_again(index, tmp_path, monkeypatch):
    damaged = tmp_path / "photo.heic"
    damaged.write_bytes(b"as an image of a phone")
    images = [*index.images[:-1], damaged]
    changed = replace(index, images=images)
    with monkeypatch.context() as patch:
        patch.setattr("dml.data.image_formats.find_spec", lambda name: None)
        with pytest.raises(UserError, match="pip install pillow-heif"):
            exclude_undecodable(changed, False, tmp_path / "cache")
    damaged_state = damaged.stat()
    damaged.write_bytes(index.images[0].read_bytes()[: damaged_state.st_size])
    os.utime(damaged, ns=(damaged_state.st_atime_ns, damaged_state.st_mtime_ns))
    with pytest.raises(UserError, match=r"photo\.heic") as error:
        exclude_undecodable(changed, False, tmp_path / "cache")
    assert "pip install" not in str(error.value) or not find_spec("pillow_heif")


def test_boxes_are_those_of_upright_images(tmp_path):
    """A phone's photo is stored on its side, and its box is in pixels of what is seen."""
    image = Image.new("RGB", (80, 200), "red")
    exif = image.getexif()
    exif[0x0112] = 6  # shown as 200×80
    image.save(tmp_path / "photo.jpg", exif=exif)
    upright, stored = (f"{tmp_path}/photo.jpg#{box}" for box in ("120,10,190,70", "10,120,70,190"))
    assert find_undecodable([Path(upright)], apply_orientation=True) == {}
    assert list(find_undecodable([Path(stored)], apply_orientation=True)) == [0]
    assert list(find_undecodable([Path(upright)])) == [0]
    index = ImageIndex("photos", [Path(upright)] * 4, [0, 0, 1, 1], ["train"] * 2 + ["test"] * 2)
    shown = replace(index, apply_orientation=True)
    assert len(exclude_undecodable(shown, False, tmp_path / "cache").images) == 4
    with pytest.raises(UserError, match="no pixels of the image are in the box"):
        exclude_undecodable(index, False, tmp_path / "cache")
    assert len(exclude_undecodable(shown, False, tmp_path / "cache").images) == 4


def decoded_files(monkeypatch) -> list[Path]:
    decoded = []

    def decode(image, **options):
        decoded.append(image)
        return decode_image(image, **options)

    monkeypatch.setattr(image_check, "decode_image", decode)
    return decoded


def replace_bytes(path: Path, later: int = 1) -> None:
    """Changes the content of a file of the same size, `later` seconds afterwards."""
    status, content = path.stat(), path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + later * 10**9))


def raw_images(root: Path) -> Path:
    for number in range(8):
        path = root / f"c{number // 2}" / f"{number}.ppm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"P6 4 4 255\n" + bytes([number]) * 48)
    return root


def shards_of(root: Path) -> str:
    """Packs the images below a folder into two shards; returns their pattern."""
    for row, path in enumerate(sorted(root.rglob("*.ppm"))):
        with tarfile.open(root.parent / f"shard-{row % 2}.tar", "a") as shard:
            shard.add(path, path.name)
            label = path.parent.name.encode()
            member = tarfile.TarInfo(f"{path.stem}.cls")
            member.size = len(label)
            shard.addfile(member, io.BytesIO(label))
    return f"{root.parent}/shard-*.tar"


def test_only_changed_files_are_read_again_and_change_the_content(tmp_path, monkeypatch):
    index = read_folder(raw_images(tmp_path / "raw"))
    decoded = decoded_files(monkeypatch)
    first = exclude_undecodable(index, False, tmp_path / "cache").content
    assert len(decoded) == 8
    os.utime(index.images[3])  # touched, not changed
    assert exclude_undecodable(index, False, tmp_path / "cache").content == first
    assert decoded[8:] == [index.images[3]]
    replace_bytes(index.images[5])
    assert exclude_undecodable(index, False, tmp_path / "cache").content != first
    assert decoded[9:] == [index.images[5]]


def test_a_check_works_where_nothing_can_be_written(tmp_path):
    index = read_folder(raw_images(tmp_path / "raw"))
    (tmp_path / "file").touch()
    first = exclude_undecodable(index, False, tmp_path / "file" / "cache")
    assert exclude_undecodable(index, False, tmp_path / "file" / "cache").content == first.content
    replace_bytes(index.images[0])
    assert exclude_undecodable(index, False, tmp_path / "file" / "cache").content != first.content


def as_bytes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


STORED = [
    *("cut", "text", {"problems": as_bytes("[]")}, {"problems": as_bytes("no")}),
    *({"problems": as_bytes(text)} for text in ('{"2": "damaged"}', '{"x": "damaged"}', "{1")),
    *({"records": array} for array in (np.zeros(8), np.zeros(7, image_check.RECORD), np.eye(2))),
]


@pytest.mark.parametrize("stored", STORED)
def test_a_stored_check_of_another_form_is_made_again(tmp_path, stored):
    index = read_folder(raw_images(tmp_path / "raw"))
    first = exclude_undecodable(index, False, tmp_path / "cache")
    (file,) = (tmp_path / "cache").glob("checked-*.npz")
    arrays = dict(np.load(file))
    if stored == "cut":
        file.write_bytes(file.read_bytes()[:200])
    elif stored == "text":
        file.write_text("{}")
    else:
        np.savez(file, **arrays | stored)
    assert exclude_undecodable(index, False, tmp_path / "cache").content == first.content


def test_boxes_change_with_their_file(tmp_path):
    root = raw_images(tmp_path)
    rows = [f"c{n // 2}/{n}.ppm,k{n // 2},{x},0,4,4" for n in range(8) for x in (0, 2)]
    (root / "list.csv").write_text("\n".join(["path,label,x_1,y_1,x_2,y_2", *rows]) + "\n")
    index = read_folder(root / "list.csv")
    first = exclude_undecodable(index, False, tmp_path / "cache")
    assert len(first.images) == 16
    assert not first.notes
    replace_bytes(root / "c1/3.ppm")
    assert exclude_undecodable(index, False, tmp_path / "cache").content != first.content


@pytest.mark.promise(
    "guides/own_images.md",
    "a picture is in two classes, in equal bytes or equal pixels: a note counts such copies, and "
    "those between training and test",
)
def test_equal_pictures_of_two_classes_are_noted(tmp_path):
    root = raw_images(tmp_path / "raw")
    for name in ("c1/same", "c3/same"):
        shutil.copy(root / "c0/0.ppm", root / f"{name}.ppm")
    Image.open(root / "c0/0.ppm").save(root / "c3/again.png")
    shutil.copy(root / "c2/4.ppm", root / "c2/of_the_same_class.ppm")
    (root / "c1/larger.ppm").write_bytes(
        b"P6 2 8 255\n" + bytes(48)
    )  # as many zeros as in c0/0.ppm
    checked = exclude_undecodable(read_folder(root), False, tmp_path / "cache")
    (note,) = checked.notes
    assert note.startswith(
        "data: 3 images are also in another class, pixel for pixel (2 in training and test): "
    )
    assert note.count("0.ppm and") == 3
    again = exclude_undecodable(read_folder(root), False, tmp_path / "cache")  # as it is stored
    assert again.notes == checked.notes


def test_copies_are_found_without_damaged_images_and_in_boxes(tmp_path):
    root = raw_images(tmp_path / "raw")
    for label in range(2):
        truncate(save(root / f"c{label}" / "damaged.png", 1))
    index = exclude_undecodable(read_folder(root), True, tmp_path / "cache")
    assert index.skipped == 2
    assert "pixel for pixel" not in " ".join(index.notes)
    rows = ["c0/0.ppm,a,0,0,2,2", "c0/0.ppm,b,2,2,4,4", "c1/2.ppm,b,0,0,2,2"]
    (root / "list.csv").write_text("\n".join(["path,label,x_1,y_1,x_2,y_2", *rows]))
    (note,) = exclude_undecodable(read_folder(root / "list.csv"), False, tmp_path / "cache").notes
    assert note.startswith("data: 1 image is also in another class")


def test_copies_beside_damaged_images_are_named(tmp_path):
    root = raw_images(tmp_path / "raw")
    truncate(save(root / "c0" / "00.png", 1))  # the first image
    for name in ("c1/same", "c2/same"):
        shutil.copy(root / "c0/1.ppm", root / f"{name}.ppm")
    found = inspect_images(read_folder(root))
    assert [root / "c0/00.png"] == [Path(line.split()[3].strip(":")) for line in found.problems]
    first = root / "c0/1.ppm"
    assert found.copies == [(first, root / "c1/same.ppm"), (first, root / "c2/same.ppm")]


@pytest.mark.promise("guides/own_images.md", "images have transparent pixels: a note counts them")
def test_transparent_images_are_counted(tmp_path):
    root = raw_images(tmp_path / "raw")
    for name, alpha in (("c0/a", 0), ("c1/b", 254), ("c2/opaque", 255)):
        Image.new("RGBA", (4, 4), (90, 0, 0, alpha)).save(root / f"{name}.png")
    checked = exclude_undecodable(read_folder(root), False, tmp_path / "cache")
    assert checked.transparent == 2
    (note,) = describe_images(checked)
    assert "2 of 11 images have transparent pixels" in note
    assert "data.background" in note


def test_transparency_is_that_of_pixels_without_a_check_too(tmp_path):
    """By the header of any format first; an image that is damaged does not count."""
    root = raw_images(tmp_path / "raw")
    clear = Image.new("RGBA", (4, 4), (90, 0, 0, 0))
    for name, image in {
        "c0/a.png": clear,
        "c0/b.png": clear.convert("LA"),
        "c1/c.gif": clear,
        "c1/opaque.png": Image.new("RGBA", (4, 4), (90, 0, 0, 255)),
        "c1/no_alpha.png": clear.convert("RGB"),
        "c2/damaged.png": clear.resize((400, 400)),
    }.items():
        image.save(root / name)
    truncate(root / "c2/damaged.png")
    index = read_folder(root)
    assert index.transparent is None
    assert count_transparent(index).transparent == 3


def test_an_interrupted_check_continues(tmp_path, monkeypatch):
    index = read_folder(raw_images(tmp_path / "raw"))
    decoded = decoded_files(monkeypatch)
    decode = image_check.decode_image

    def stop(image, **options):
        if len(decoded) >= 3:
            raise KeyboardInterrupt
        return decode(image, **options)

    with monkeypatch.context() as patch:
        patch.setattr(image_check, "decode_image", stop)
        patch.setattr(image_check, "map_in_threads", map)
        patch.setattr(image_check, "closing", nullcontext)
        with pytest.raises(KeyboardInterrupt):
            exclude_undecodable(index, False, tmp_path / "cache")
    content = exclude_undecodable(index, False, tmp_path / "cache").content
    assert sorted(decoded) == [*index.images]  # each once
    assert content == exclude_undecodable(index, False, tmp_path / "other").content


@pytest.mark.parametrize("form", ["files", "shards"])
def test_a_killed_check_continues_from_the_part_that_was_stored(tmp_path, monkeypatch, form):
    root = raw_images(tmp_path / "raw")
    index = read_folder(root if form == "files" else shards_of(root))
    monkeypatch.setattr(image_check, "SAVE_SECONDS", 0.0)
    check = partial(exclude_undecodable, index, False, tmp_path / "cache")
    assert die_at("before_rename:4", check) == KILLED
    decoded = decoded_files(monkeypatch)
    content = check().content
    assert sorted(decoded) == sorted([*index.images][3:])
    assert content == exclude_undecodable(index, False, tmp_path / "other").content
