"""Images in tar shards and Parquet tables: the index of the same files, and what is refused."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from PIL import Image
from pyarrow import parquet

from dml.core.errors import UserError
from dml.data import packed_images
from dml.data.decode import load_image
from dml.data.image_index import ImageIndex
from dml.data.packed_images import Packed, join_packed, read_packed, split_packed
from dml.data.preparation.image_check import exclude_undecodable, find_undecodable
from dml.data.readers import packed, packed_listing
from dml.data.readers.folder import list_images, read_folder
from dml.data.readers.packed import read_packed_images
from tests.killed_process import KILLED, die_at

Members = Sequence[tuple[str, bytes]]


def picture(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (5, 7, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_tar(path: Path, members: Members) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def with_classes(labels: Sequence[str], first: int = 0) -> list[tuple[str, bytes]]:
    members = []
    for number, label in enumerate(labels, first):
        members += [
            (f"a/{number:03d}.png", picture(number)),
            (f"a/{number:03d}.cls", label.encode()),
        ]
    return members


def described(*objects: Any) -> list[tuple[str, bytes]]:
    """Members of images with an object each in .json."""
    members = []
    for number, one in enumerate(objects):
        members += [
            (f"{number}.png", picture(number)),
            (f"{number}.json", json.dumps(one).encode()),
        ]
    return members


def write_table(path: Path, rows: int = 6, group: int = 4, **columns: Any) -> Path:
    images = [{"bytes": picture(row), "path": f"/there/{row}.png"} for row in range(rows)]
    values = {"image": images} | columns
    table = pyarrow.table({key: value for key, value in values.items() if value is not None})
    parquet.write_table(table, path, row_group_size=group)
    return path


LABELS = ["cat", "dog", "cat", "dog", "emu", "emu"]


def as_tar(folder: Path) -> str:
    write_tar(folder / "b-0.tar", with_classes(LABELS[:4]))
    write_tar(folder / "b-1.tar", with_classes(LABELS[4:], first=4))
    return str(folder / "b-*.tar")


def as_table(folder: Path) -> str:
    return str(write_table(folder / "photos.parquet", label=LABELS))


@pytest.mark.parametrize("write", [as_tar, as_table])
def test_is_the_index_of_the_same_files(tmp_path: Path, write: Callable[[Path], str]) -> None:
    for number, label in enumerate(LABELS):
        (tmp_path / "files" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / label / f"{number}.png").write_bytes(picture(number))
    files = read_folder(tmp_path / "files")
    index = read_folder(write(tmp_path))
    assert index.class_names == files.class_names == ("cat", "dog", "emu")
    assert sorted(index.labels) == sorted(files.labels)
    assert not index.own_split
    numbers = [int(Path(file).stem) for file in index.images]
    assert [LABELS[number] for number in numbers] == [index.class_names[n] for n in index.labels]
    for row in (5, 0, 3, 5):
        expected = np.asarray(Image.open(io.BytesIO(picture(numbers[row]))))
        np.testing.assert_array_equal(load_image(index.images[row]).permute(1, 2, 0), expected)


@pytest.mark.promise(
    "guides/own_images.md",
    "an archive has a label without an image that can be read: a note counts such keys, at each "
    "start",
)
@pytest.mark.parametrize("stored", [False, True])
def test_links_and_images_that_cannot_be_read(tmp_path, monkeypatch, stored) -> None:
    """GNU tar stores the second name of a file as a link."""
    monkeypatch.setattr(packed_listing, "FEW", 0)
    path = write_tar(tmp_path / "a.tar", with_classes(LABELS))
    with tarfile.open(path, "a") as archive:
        linked = tarfile.TarInfo("a/100.png")
        linked.type, linked.linkname = tarfile.LNKTYPE, "a/002.png"
        archive.addfile(linked)
        elsewhere = tarfile.TarInfo("a/101.png")
        elsewhere.type, elsewhere.linkname = tarfile.SYMTYPE, "002.png"
        archive.addfile(elsewhere)
        labels = {"100.cls": b"dog", "101.cls": b"dog", "102.phone": b"x", "102.cls": b"dog"}
        for name, data in labels.items():
            member = tarfile.TarInfo(f"a/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    folder = tmp_path / ".cache" if stored else None
    for _ in range(2):
        found = read_packed_images(path, [path], labeled=True, folder=folder)
        assert len(found.names) == 7
        assert torch.equal(load_image(found.names[6]), load_image(found.names[2]))
        assert found.table.label[6] == "dog"
        (note,) = found.notes
        assert note.startswith("2 keys have a label and no image that can be read, first a/101")
    (only,) = read_folder(path).notes
    assert only == f"data: {note}"
    monkeypatch.setattr(packed, "is_readable", lambda name: name.endswith((".png", ".phone")))
    assert len(read_packed_images(path, [path], labeled=True, folder=folder).names) == 8


@pytest.mark.promise(
    "guides/own_images.md",
    "files of a pattern have splits in their names, and no column or `.json` has: these are the "
    "splits, and a note says so",
)
@pytest.mark.parametrize("suffix", ["tar", "parquet"])
def test_splits_in_the_names_of_files(tmp_path, suffix) -> None:
    def write(name: str, labels: list[str]) -> None:
        if suffix == "tar":
            write_tar(tmp_path / f"{name}.tar", with_classes(labels))
        else:
            write_table(tmp_path / f"{name}.parquet", rows=len(labels), label=labels)

    write("train-00000-of-00002", ["a", "b", "a", "b"])
    write("train-00001-of-00002", ["c", "c"])
    index = read_folder(tmp_path / f"*.{suffix}")
    assert not index.own_split
    write("test-00000-of-00001", ["d", "e", "d", "e"])
    index = read_folder(tmp_path / f"*.{suffix}")
    assert index.roles.tolist() == ["test"] * 4 + ["train"] * 6
    assert index.own_split
    assert "data: the splits are those in the names of the files" in index.notes
    write("more", ["f", "g"])
    assert not read_folder(tmp_path / f"*.{suffix}").own_split


def test_reads_splits_and_categories(tmp_path: Path) -> None:
    options = [
        {"label": label, "split": split, "category": category}
        for label, split, category in (
            ("cat", "Train", "pet"), ("cat", "Train", None), ("emu", "test", "bird"),
            ("emu", "test", "bird"),
        )
    ]  # fmt: skip
    columns = {key: [one[key] for one in options] for key in ("label", "split", "category")}
    sources = (
        write_tar(tmp_path / "one.tar", described(*options)),
        write_table(tmp_path / "one.parquet", rows=4, **columns),
    )
    for source in sources:
        index = read_folder(source)
        assert index.roles.tolist() == ["train", "train", "test", "test"]
        assert index.categories.tolist() == ["pet", "", "bird", "bird"]
        assert index.own_split


def test_takes_the_forms_that_people_write(tmp_path: Path) -> None:
    """Numbers, names of Hugging Face, binary columns, upper case, other members."""
    features = {"info": {"features": {"label": {"names": ["ant", "bee"], "_type": "ClassLabel"}}}}
    table = pyarrow.table({"image": [picture(row) for row in range(4)], "label": [1, 0, 1, 0]})
    table = table.replace_schema_metadata({"huggingface": json.dumps(features)})
    parquet.write_table(table, tmp_path / "HF.PARQUET")
    named = read_folder(tmp_path / "HF.PARQUET")
    assert named.class_names == ("ant", "bee")
    assert named.labels.tolist() == [1, 0, 1, 0]
    for outside in (-1, 2):  # −1 stands for no label there
        table = table.set_column(1, "label", pyarrow.array([1, 0, outside, 0]))
        table = table.replace_schema_metadata({"huggingface": json.dumps(features)})
        parquet.write_table(table, tmp_path / "HF.PARQUET")
        with pytest.raises(UserError, match="1 of 4 images have no label"):
            read_folder(tmp_path / "HF.PARQUET")
    numbers = write_table(tmp_path / "numbers.parquet", label=[10, 9, 9, 10, 9, 10])
    assert read_folder(numbers).class_names == ("9", "10")
    members = [
        *with_classes(["7", "8"]),
        *[(f"B/x.{ending}", data) for ending, data in (("PNG", picture(9)), ("CLS", b" 8\n"))],
        *[("other/000.png", picture(5)), ("other/000.cls", b"8")],
        *[("notes.txt", b"."), ("a/._000.png", b"."), ("a/000.depth.npy", b"."), ("c.json", b"[")],
    ]
    index = read_folder(write_tar(tmp_path / "S.TAR", members))
    assert index.class_names == ("7", "8")
    assert index.labels.tolist() == [0, 1, 1, 1]
    assert str(index.images[2]).endswith("/B/x.PNG")


def test_names_lead_back_to_the_images(tmp_path: Path) -> None:
    """Also names that a folder could have, and of keys that point elsewhere."""
    for place, name, text in (
        (Packed(Path("a/b.tar"), 512, 30), "k/1.jpg", "a/b.tar#512+30/k/1.jpg"),
        (Packed(Path("b.tar"), 0, 1), "/../x/./y.jpg", "b.tar#0+1/x/y.jpg"),
        (Packed(Path("p.parquet"), 7, None), "", "p.parquet#7"),
        (Packed(Path("p.Parquet"), 7, None), "q#1.jpg", "p.Parquet#7/q#1.jpg"),
    ):
        assert join_packed(place, name) == Path(text)
        assert split_packed(text) == place
    for text in ("b.tar/k.jpg", "a#1/k.jpg", "b.tar#1", "b.tar#1+x/k.jpg", "k.jpg#1,2,3,4"):
        assert split_packed(text) is None


@pytest.mark.parametrize("write", [as_tar, as_table])
def test_identity_does_not_depend_on_the_folder(
    tmp_path: Path, write: Callable[[Path], str]
) -> None:
    fingerprints = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        fingerprints.append(read_folder(write(tmp_path / name)).fingerprint())
    assert fingerprints[0] == fingerprints[1]
    write_tar(tmp_path / "here" / "b-0.tar", with_classes(["cat", "dog", "dog", "cat"]))
    write_table(tmp_path / "here" / "photos.parquet", label=[*LABELS[:3], *LABELS[2:5]])
    source = tmp_path / "here" / ("b-*.tar" if write is as_tar else "photos.parquet")
    assert read_folder(str(source)).fingerprint() != fingerprints[0]


def test_a_damaged_image_is_found_and_left_out(tmp_path: Path) -> None:
    members = with_classes(LABELS)
    members[2] = (members[2][0], b"no image")
    index = read_folder(write_tar(tmp_path / "one.tar", members))
    with pytest.raises(UserError, match=r"cannot decode .*one\.tar#\d+\+8/a/001\.png: "):
        exclude_undecodable(index, skip=False, folder=tmp_path)
    kept = exclude_undecodable(index, skip=True, folder=tmp_path)
    assert (len(kept.images), kept.skipped) == (5, 1)
    rows = [{"bytes": picture(0)}, {"bytes": None}] * 2
    table = pyarrow.table({"image": rows, "label": ["a", "a", "b", "b"]})
    parquet.write_table(table, tmp_path / "two.parquet")
    problems = find_undecodable(read_folder(tmp_path / "two.parquet").files)
    assert list(problems) == [1, 3]
    assert "row 1 has no bytes" in problems[1]


def test_a_check_is_repeated_when_a_shard_changes(tmp_path: Path) -> None:
    shard = tmp_path / "one.tar"
    contents = []
    for first in (0, 0, 100):
        members = with_classes(LABELS, first)
        named = [
            (old, data) for (old, _), (_, data) in zip(with_classes(LABELS), members, strict=True)
        ]
        write_tar(shard, named)
        os.utime(shard, ns=(first, first))
        contents.append(exclude_undecodable(read_folder(shard), False, tmp_path).content)
    assert contents[0] == contents[1] != contents[2]


def test_tables_are_read_in_a_forked_process(tmp_path: Path) -> None:
    """With groups of rows that were left in memory before, and others."""
    index = read_folder(as_table(tmp_path))
    before = [read_packed(split_packed(index.images[row])) for row in (0, 5)]
    end, start = os.pipe()
    child = os.fork()
    if child == 0:
        if packed_images._tables:  # threads of pyarrow, and locks, are those of the parent
            os._exit(1)
        data = b"".join(read_packed(split_packed(index.images[row])) for row in (0, 5))
        os.write(start, data)
        os._exit(0)
    os.close(start)
    assert os.read(end, 1 << 16) == b"".join(before)
    assert os.waitpid(child, 0)[1] == 0


def test_few_groups_of_rows_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_images, "KEPT_BYTES", 500)
    packed_images._groups.clear()
    index = read_folder(write_table(tmp_path / "t.parquet", rows=12, group=1, label=["a", "b"] * 6))
    packed_images._tables.clear()
    for image in index.images:
        assert read_packed(split_packed(image)) == picture(int(Path(image).stem))
    assert 1 <= len(packed_images._groups) < 5
    for limit, kept in ((1, 1), (1 << 20, 12)):  # of a group that is larger than the limit, too
        monkeypatch.setattr(packed_images, "KEPT_BYTES", limit)
        for image in index.images:
            read_packed(split_packed(image))
        assert len(packed_images._groups) == kept


def test_few_tables_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_images, "TABLES", 2)
    for number in range(5):
        write_table(tmp_path / f"{number}.parquet", label=LABELS)
    index = read_folder(f"{tmp_path}/*.parquet")
    for row in (*range(30), *range(0, 30, 7)):
        assert read_packed(split_packed(index.images[row])) == picture(row % 6)
    assert len(packed_images._tables) == 2
    tables = {id(table) for table in packed_images._tables.values()}
    assert {table for table, _ in packed_images._groups} <= tables


@pytest.fixture
def large_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of any size are unpacked."""
    monkeypatch.setattr("dml.data.readers.packed.SMALL", 0)


@pytest.mark.usefixtures("large_tables")
def test_large_tables_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Structs and binary columns; a row without bytes has none, and a table that changes others."""
    plain = read_folder(as_table(tmp_path))
    images = [picture(0), None, picture(2), picture(3)]
    binary = write_table(tmp_path / "binary.parquet", 4, label=["a", "b"] * 2, image=images)
    with monkeypatch.context() as patch:
        patch.setattr(packed_images, "_open_table", None)  # no group of rows is decoded
        for row in (5, 0, 3):
            assert read_packed(split_packed(plain.images[row])) == picture(row)
        index = read_folder(binary)
        assert read_packed(split_packed(index.images[3])) == picture(3)
        with pytest.raises(OSError, match="row 1 has no bytes"):
            read_packed(split_packed(index.images[1]))
        with pytest.raises(OSError, match="no row 4"):
            read_packed(Packed(binary, 4, None))
    write_table(binary, 4, label=["a", "b"] * 2)
    with pytest.raises(OSError, match="has changed"):
        read_packed(split_packed(index.images[1]))
    read_folder(binary)
    assert read_packed(split_packed(index.images[1])) == picture(1)
    assert len(list((tmp_path / ".cache").glob("unpacked-*.bytes"))) == 2


@pytest.mark.usefixtures("large_tables")
@pytest.mark.parametrize("name", ["unpacked-*.bytes", "unpacked-*.npy"])
def test_a_damaged_copy_of_a_table_is_named(tmp_path: Path, name: str) -> None:
    index = read_folder(as_table(tmp_path))
    (file,) = (tmp_path / ".cache").glob(name)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(UserError, match=r"unpacked-.* is damaged; delete it"):
        load_image(index.images[5])
    file.unlink()
    if file.suffix == ".npy":
        read_folder(tmp_path / "photos.parquet")
        assert load_image(index.images[5]).shape == (3, 5, 7)


@pytest.mark.promise(
    "guides/how_it_grows.md",
    "the copy of a Parquet table cannot be written: a note says so, and the table itself is read",
)
@pytest.mark.usefixtures("large_tables")
def test_tables_are_read_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = as_table(tmp_path)
    (tmp_path / ".cache").touch()
    (note,) = read_folder(table).notes
    assert "cannot be unpacked to" in note
    (tmp_path / ".cache").unlink()
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 9))
    (note,) = read_folder(table).notes
    assert "bytes must be free" in note
    assert load_image(read_folder(table).images[5]).shape == (3, 5, 7)


def test_lists_of_images_need_no_labels(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files, labels = list_images(as_tar(tmp_path))
    assert [labels[str(file)] for file in files] == LABELS
    files, labels = list_images(write_table(tmp_path / "none.parquet"))
    assert (len(files), labels) == (6, {})
    assert not caplog.text
    files, labels = list_images(write_tar(tmp_path / "some.tar", with_classes(LABELS)[:-1]))
    assert (len(files), labels) == (6, {})
    assert "no labels are written" in caplog.text
    assert list_images([files[2]]) == ([files[2]], {})


GOOD = with_classes(LABELS)


def cut(path: Path, size: int) -> Path:
    path.write_bytes(path.read_bytes()[:size])
    return path


def overwrite(path: Path, position: int) -> Path:
    content = bytearray(path.read_bytes())
    content[position : position + 9] = b"#########"
    path.write_bytes(content)
    return path


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no match": (lambda at: at / "x-*.tar", r"x-\*\.tar: no file has a name"),
    "no label": (
        lambda at: write_tar(at / "s.tar", GOOD[:-1]),
        r"1 of 6 images have no label, first .*005\.png; give a class",
    ),
    "empty label": (lambda at: write_tar(at / "s.tar", [*GOOD[:-1], ("a/005.cls", b" ")]), "label"),
    "null label": (lambda at: write_table(at / "t.parquet", label=[*LABELS[:5], None]), "1 of 6"),
    "no labels": (lambda at: write_table(at / "t.parquet"), "6 of 6 images have no label"),
    "number and text": (
        lambda at: write_tar(at / "s.tar", described({"label": 3}, {"label": "cat"})),
        r"labels are numbers and texts \(3 of .*0\.png, 'cat' of .*1\.png\)",
    ),
    "numbers and texts of tables": (
        lambda at: (
            write_table(at / "a.parquet", label=[1, 2] * 3),
            write_table(at / "b.parquet", label=LABELS),
            at / "*.parquet",
        )[2],
        "labels are numbers and texts",
    ),
    "list as label": (
        lambda at: write_tar(at / "s.tar", described({"label": [1]}, {"label": 2})),
        r"0\.png: its label is \[1\], no text or whole number",
    ),
    "truth as label": (
        lambda at: write_tar(at / "s.tar", described({"label": True}, {"label": 2})),
        "its label is true",
    ),
    "numbers with a point": (
        lambda at: write_table(at / "t.parquet", label=[0.5] * 6),
        "labels are of type float",
    ),
    "two labels": (
        lambda at: write_tar(at / "s.tar", [*GOOD, ("a/000.json", b'{"label": "emu"}')]),
        r"000\.png: its \.cls says cat, its \.json emu",
    ),
    "no JSON": (lambda at: write_tar(at / "s.tar", [*GOOD, ("a/000.json", b"{")]), r"000\.png: "),
    "no object": (
        lambda at: write_tar(at / "s.tar", [*GOOD, ("a/000.json", b"[]")]),
        r"000\.png: its \.json is no object",
    ),
    "no UTF-8": (
        lambda at: write_tar(at / "s.tar", [*GOOD[:-1], ("a/005.cls", b"\xff")]),
        r"005\.png: .*utf-8",
    ),
    "two images of a key": (
        lambda at: write_tar(at / "s.tar", [*GOOD, ("a/000.jpg", picture(0))]),
        r"s\.tar: it has two members for a/000\.jpg; a key",
    ),
    "two labels of a key": (
        lambda at: write_tar(at / "s.tar", [*GOOD, ("a/000.cls", b"emu")]),
        r"two members for a/000\.cls",
    ),
    "split of some": (
        lambda at: write_tar(
            at / "s.tar", described({"label": "a", "split": "train"}, {"label": "b"})
        ),
        "1 of 2 images have no split",
    ),
    "one class": (lambda at: write_tar(at / "s.tar", with_classes(["a", "a"])), "of 1 class,"),
    "no images": (lambda at: write_tar(at / "s.tar", [("a.cls", b"3")]), "there are no images"),
    "no members": (lambda at: write_tar(at / "s.tar", []), "there are no images"),
    "no rows": (
        lambda at: write_table(
            at / "t.parquet",
            image=pyarrow.array([], "binary"),
            label=pyarrow.array([], "string"),
        ),
        "there are no images",
    ),
    "cut in an image": (
        lambda at: cut(write_tar(at / "s.tar", GOOD), 700),
        r"s\.tar: it is damaged",
    ),
    "cut in a header": (
        lambda at: cut(write_tar(at / "s.tar", GOOD), 1100),
        r"s\.tar: it is damaged",
    ),
    "damaged header": (
        lambda at: overwrite(write_tar(at / "s.tar", GOOD), 1024 + 150),
        r"s\.tar: it is damaged at byte 1,024; copy it again",
    ),
    "damaged first header": (lambda at: overwrite(write_tar(at / "s.tar", GOOD), 150), "damaged"),
    "cut table": (
        lambda at: cut(write_table(at / "t.parquet", label=LABELS), 400),
        r"t\.parquet: it is damaged",
    ),
    "other columns": (
        lambda at: write_table(at / "t.parquet", image=None, label=LABELS),
        "it has no column image, but label",
    ),
    "no bytes": (
        lambda at: write_table(at / "t.parquet", image=[{"path": "x"}] * 6, label=LABELS),
        "column image is of type struct<path: string>; it needs the bytes",
    ),
    "gzip": (
        lambda at: ((at / "s.tar").write_bytes(b"\x1f\x8b" + bytes(600)), at / "s.tar")[1],
        r"s\.tar: it is a gzip archive, not a tar archive",
    ),
    "table called archive": (
        lambda at: write_table(at / "t.parquet", label=LABELS).rename(at / "t.tar"),
        r"t\.tar: it is a Parquet file, not a tar archive",
    ),
    "missing": (lambda at: at / "none.tar", r"none\.tar does not exist"),
}


@pytest.mark.promise(
    "guides/own_images.md",
    "a tar shard or a Parquet table is damaged or cut off: one line names the file",
)
@pytest.mark.promise(
    "guides/own_images.md",
    "images of a shard have no label, or a key two images: one line counts or names them",
)
@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, case: str) -> None:
    write, message = WRONG[case]
    with pytest.raises(UserError, match=message) as caught:
        read_folder(str(write(tmp_path)))
    assert str(caught.value).startswith("data.root: ")
    assert "\n" not in str(caught.value)


def test_a_shard_that_has_become_shorter_is_no_image(tmp_path: Path) -> None:
    index = read_folder(write_tar(tmp_path / "s.tar", GOOD))
    cut(tmp_path / "s.tar", 2000)
    for known, message in ((True, "has changed since"), (False, r"s\.tar ends before byte")):
        if not known:  # another process, which has not listed it
            packed_images._listed.clear()
        with pytest.raises(UserError, match=message):
            load_image(index.images[-1])


@pytest.mark.promise(
    "guides/how_it_grows.md",
    "a shard or a table changes while a run reads it: one line names it, and no image is read "
    "from the changed file",
)
@pytest.mark.parametrize("write", [as_tar, as_table])
def test_images_of_a_file_that_has_changed_are_not_read(
    tmp_path: Path, write: Callable[[Path], str]
) -> None:
    index = read_folder(write(tmp_path))
    assert load_image(index.images[0]).shape == (3, 5, 7)
    file = split_packed(index.images[0]).file
    status = file.stat()
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(UserError, match="has changed since its images were listed") as error:
        load_image(index.images[1])
    assert "\n" not in str(error.value)
    again = read_folder(f"{tmp_path}/b-*.tar" if write is as_tar else file)
    assert load_image(again.images[1]).shape == (3, 5, 7)


@pytest.fixture
def stored_lists(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read for a list; lists of any size are stored."""
    monkeypatch.setattr(packed_listing, "FEW", 0)
    read: list[Path] = []
    for name in ("_read_archive", "_read_table"):
        function = getattr(packed, name)

        def remember(file: Path, function: Any = function, **more: Any) -> Any:
            read.append(file)
            return function(file, **more)

        monkeypatch.setattr(packed, name, remember)
    return read


def described_index(index: ImageIndex) -> list[Any]:
    parts = [[*index.images], index.labels.tolist(), index.roles.tolist(), index.class_names]
    return [*parts, None if index.categories is None else index.categories.tolist()]


@pytest.mark.parametrize("ending", ["tar", "parquet"])
def test_only_files_that_have_changed_are_listed_again(
    tmp_path: Path, stored_lists: list[Path], ending: str
) -> None:
    options = [
        {"label": label, "split": split, "category": category}
        for label, split, category in (
            ("\ud800", "train", "pet"), ("10", "train", None), ("9", "test", "é"),
            ("9", "test", "pet"),
        )
    ]  # fmt: skip
    if ending == "parquet":
        options[0]["label"] = "cat"
    columns = {key: [one[key] for one in options] for key in ("label", "split", "category")}

    def write(name: str, kept: int = 4) -> Path:
        if ending == "tar":
            return write_tar(tmp_path / name, described(*options[:kept]))
        some = {key: values[:kept] for key, values in columns.items()}
        return write_table(tmp_path / name, kept, **some)

    paths = [write(f"{number}.{ending}") for number in range(3)]
    pattern = f"{tmp_path}/*.{ending}"
    first = described_index(read_folder(pattern))
    assert stored_lists == paths
    assert described_index(read_folder(pattern)) == first
    assert stored_lists == paths
    options[1] = {"label": "new", "split": "train", "category": "other"}
    columns = {key: [one[key] for one in options] for key in ("label", "split", "category")}
    write(f"1.{ending}", 3)
    changed = described_index(read_folder(pattern))
    assert stored_lists[3:] == [paths[1]]
    shutil.rmtree(tmp_path / ".cache")
    assert described_index(read_folder(pattern)) == changed  # as if nothing was stored


def test_a_list_that_is_interrupted_continues(
    tmp_path: Path, stored_lists: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = as_tar(tmp_path)
    remember = packed._read_archive

    def stop(file: Path, **more: Any) -> Any:
        if stored_lists:
            raise KeyboardInterrupt
        return remember(file, **more)

    with monkeypatch.context() as patch:
        patch.setattr(packed, "_read_archive", stop)
        with pytest.raises(KeyboardInterrupt):
            read_folder(pattern)
    index = read_folder(pattern)
    assert [file.name for file in stored_lists] == ["b-0.tar", "b-1.tar"]  # each once
    assert described_index(index) == described_index(read_folder(pattern))


@pytest.mark.parametrize("ending", ["tar", "parquet"])
def test_a_list_that_is_killed_continues(
    tmp_path: Path, stored_lists: list[Path], ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = []
    for number in range(3):
        path = tmp_path / f"{number}.{ending}"
        members = with_classes(LABELS, first=10 * number)
        paths.append(
            write_tar(path, members) if ending == "tar" else write_table(path, label=LABELS)
        )
    pattern = f"{tmp_path}/*.{ending}"
    monkeypatch.setattr(packed_listing, "SAVE_SECONDS", 0.0)
    assert die_at("before_rename:2", read_folder, pattern) == KILLED
    index = read_folder(pattern)
    assert stored_lists == paths[1:]  # the first was stored
    shutil.rmtree(tmp_path / ".cache")
    assert described_index(index) == described_index(read_folder(pattern))


@pytest.mark.parametrize("damage", ["cut", "text", "other numbers", "other files", "folder"])
def test_a_damaged_list_is_made_again(
    tmp_path: Path, stored_lists: list[Path], damage: str
) -> None:
    pattern = as_tar(tmp_path)
    first = described_index(read_folder(pattern))
    (file,) = (tmp_path / ".cache").glob("listed-*.npz")
    arrays = dict(np.load(file))
    if damage == "cut":
        cut(file, 300)
    elif damage == "text":
        file.write_text("no arrays")
    elif damage == "folder":
        file.unlink()
        file.mkdir()
    else:
        if damage == "other numbers":
            arrays["codes"] = arrays["codes"] + 7
        else:
            arrays["described"] = np.frombuffer(b'{"files": {}, "texts": {}}', np.uint8)
        np.savez(file, **arrays)
    assert described_index(read_folder(pattern)) == first
    assert len(stored_lists) == 4
