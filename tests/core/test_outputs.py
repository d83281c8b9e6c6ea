import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from dml.core.errors import UserError
from dml.core.names import check_name
from dml.core.outputs import (
    begins_with,
    check_not_input,
    check_output,
    has_mark,
    is_picture_of,
    text_mark,
)
from dml.core.plotting import plt
from dml.runs.figures.drawing import check_picture, save


def draw(path, origin):
    figure, axis = plt.subplots()
    axis.plot([1, 2])
    save(figure, path, origin)


def test_a_picture_is_known_by_its_origin(tmp_path):
    path = tmp_path / "x.png"
    draw(path, "search größe -- .npz")
    assert is_picture_of("search größe -- .npz")(path)
    assert not is_picture_of("search other.npz")(path)
    assert check_picture(path, "--picture", origin="search größe -- .npz") == path
    with pytest.raises(UserError, match="exists, and this command did not write it"):
        check_picture(path, "--picture", origin="search other.npz")
    assert check_picture(path, "--picture", True, "search other.npz") == path


def foreign_pictures(folder):
    """PNGs of others, and files that only begin as one."""
    image = Image.new("RGB", (4, 4))
    image.save(folder / "plain.png")
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Software", "dml or another")
    texts.add_text("Source", "search x.npz")
    image.save(folder / "almost.png", pnginfo=texts)
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.png").write_text("Software\0dml")
    (folder / "short.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (folder / "long.png").write_bytes(b"\x89PNG\r\n\x1a\n\xff\xff\xff\xfftEXtSoftware\0dml")
    return sorted(folder.glob("*.png"))


def test_pictures_of_others(tmp_path):
    for path in foreign_pictures(tmp_path):
        before = path.read_bytes()
        with pytest.raises(UserError, match="choose another name"):
            check_picture(path, "--picture", origin="search x.npz")
        assert path.read_bytes() == before


def test_what_is_no_file(tmp_path):
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "lost.png").symlink_to("nowhere")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    for name in ("folder", "pipe", "lost", "zero"):
        for overwrite in (False, True):
            with pytest.raises(UserError):
                check_picture(tmp_path / f"{name}.png", "--picture", overwrite)
    for name in ("", ".", "x", "x.npz", "x.png.txt", "x.jpg"):
        with pytest.raises(UserError, match=r"must be a file that ends in \.png"):
            check_picture(tmp_path / name if name else name, "--picture", True)
    assert check_picture(tmp_path / "new.PNG", "--picture")


def test_marks_of_texts(tmp_path):
    page, table = tmp_path / "x.html", tmp_path / "x.csv"
    page.write_text(f"<html>\n{text_mark('report a--b')}\n")
    table.write_bytes(b"folder,summary\r\n1,2\r\n")
    assert has_mark("report a--b")(page)
    assert not has_mark("report a")(page)
    assert begins_with("folder,summary")(table)
    assert not begins_with("folder")(table)
    with pytest.raises(UserError, match="is read by this command"):
        check_not_input(table, "--out", tmp_path / "absent.csv", table)
    np.savez(tmp_path / "x.npz", embeddings=np.eye(2))
    ours = has_mark("report")
    with pytest.raises(UserError, match="choose another name, or add overwrite=true"):
        check_output(tmp_path / "x.npz", "save", (), ours, hint="overwrite=true")


@pytest.mark.parametrize("name", ["a--><img>", "a---><img>", "a--!><img>", "a->", "-", "--", "<b>"])
def test_a_name_does_not_end_the_comment_of_a_mark(tmp_path, name):
    mark = text_mark(f"errors of {name}")
    beginning, inside, end = mark.partition(" -->")
    assert beginning.startswith("<!-- written by dml: errors of ")
    assert (inside, end) == (" -->", "")
    assert "--" not in beginning.removeprefix("<!--")
    (tmp_path / "x.html").write_text(f"<html>\n{mark}\n")
    assert has_mark(f"errors of {name}")(tmp_path / "x.html")


def test_an_input_is_known_by_each_of_its_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "x.csv"
    table.write_text("1,2")
    (tmp_path / "linked.csv").symlink_to(table)
    (tmp_path / "second_name.csv").hardlink_to(table)
    (tmp_path / "copy.csv").write_text("1,2")
    for name in ("linked.csv", "second_name.csv", "x.csv"):
        with pytest.raises(UserError, match=f"--out: {name} is read by this command"):
            check_not_input(Path(name), "--out", table)
    check_not_input(Path("copy.csv"), "--out", table)


NO_NAMES = ("../evil", "/evil", "a/b", "..", ".", "", "-x", "a\0b", "x" * 200)


@pytest.mark.parametrize("name", NO_NAMES)
def test_names_are_no_paths(name):
    with pytest.raises(UserError, match="becomes the name of a file"):
        check_name(name, "--name")
    assert check_name("my_loss-2.1", "--name") == "my_loss-2.1"
