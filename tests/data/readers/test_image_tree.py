"""Images below a folder, in the order and with the names that Paths have."""

import os
from pathlib import Path

import pytest

from dml.core.errors import UserError
from dml.data.readers.folder import list_images, read_folder
from dml.data.readers.image_tree import find_missing, walk_images

# A separator is sorted before every letter: below `a` before `a b` and `a-b`.
FILES = [
    "a/b/2.png", "a/b.png", "a/b-c/1.png", "a/b c/1.png", "a/é.png", "a b/1.png", "a-b/1.PNG",
    "b/#1.png", "b/1#2,3,4,5.png", "top.png", "B/new\nline.png", os.fsdecode(b"c/\xff.png"),
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_images_are_sorted_as_paths(root: Path) -> None:
    files, folders, left_out = walk_images(root)
    assert [*files] == sorted(root / name for name in FILES)
    assert folders == [file.relative_to(root).parts[:-1] for file in files]
    assert not left_out


@pytest.mark.parametrize("start", [".", "./", "a/..", "a"])
def test_names_begin_with_the_root(root: Path, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    below = Path(start)
    files, folders, _ = walk_images(below)
    assert [*files] == sorted(path for path in below.rglob("*") if path.is_file())
    assert folders == [file.relative_to(below).parts[:-1] for file in files]
    assert not find_missing(files)
    assert find_missing([*files[:2], below / "gone.png", *files[2:]]) == [below / "gone.png"]


def test_images_outside_of_classes_shift_no_label(tmp_path: Path) -> None:
    for name in ("a/1.png", "a/2.png", "b.png", "c/1.png", "c/2.png", "d.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    index = read_folder(tmp_path)
    assert [file.parent.name for file in index.images] == ["a", "a", "c", "c"]
    assert index.labels.tolist() == [0, 0, 1, 1]
    assert "2 outside of folders of classes" in index.notes[0]


@pytest.mark.parametrize("read", [read_folder, list_images])
@pytest.mark.parametrize("target", ["gone.png", "link.png", "../b"])
def test_a_link_to_no_file_is_named(tmp_path: Path, read, target: str) -> None:
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    link = tmp_path / "b" / "link.png"
    link.symlink_to(target)
    if target == "../b":  # a folder, whatever its name
        assert link not in walk_images(tmp_path).files
        return
    with pytest.raises(UserError) as error:
        read(tmp_path)
    assert str(link) in str(error.value)
    assert "of 5" in str(error.value)


@pytest.mark.parametrize("listed", ["a/1.png", "./a//1.png", "a/../a/1.png", "a\\1.png"])
def test_rows_of_a_table_are_the_same_image_however_written(tmp_path: Path, listed: str) -> None:
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    table = tmp_path / "images.csv"
    rows = ["path,label", f"{listed},x", "a/2.png,x", "b/1.png,y", "b/2.png,y"]
    table.write_text("\n".join(rows))
    assert read_folder(table).images[0] == tmp_path / "a" / "1.png"
    table.write_text("\n".join([*rows, "a/1.png,x"]))
    with pytest.raises(UserError, match="is listed twice"):
        read_folder(table)
