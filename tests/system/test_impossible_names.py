"""Names that no file can have, in files of others and in Python: one line, no traceback."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dml
from dml.cli.report_command import main as report
from dml.cli.runs_command import main as runs
from dml.core.errors import UserError
from dml.retrieval.embedding_file import ImageEmbeddings, write_embeddings
from tests.commands import embed, search

NAMES = ["a\0b", "\ud83d", "a\0\n\x1b[2Jb"]


@pytest.fixture
def run(run_tiny, tmp_path, monkeypatch):
    _, folder = run_tiny("protocol.epochs=0")
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (8, 8)).save("good.png")
    return str(folder)


@pytest.mark.parametrize("name", NAMES)
def test_functions(run, name):
    write_embeddings(
        Path("x.npz"), ImageEmbeddings(np.eye(4, dtype="f"), np.array(list("abcd")), None, {})
    )
    calls = {
        "load": lambda: dml.load(name),
        "images": lambda: dml.embed(run, [f"{name}.png"]),
        "folder of images": lambda: dml.embed(run, name),
        "network": lambda: dml.embed(name, ["good.png"]),
        "embeddings": lambda: dml.embed(run, ["good.png"], f"{name}.npz"),
        "search": lambda: dml.search(f"{name}.npz", [0]),
        "query": lambda: dml.search("x.npz", [f"{name}.png"], k=1),
        "picture": lambda: dml.search("x.npz", [0], k=1, picture=f"{name}.png"),
        "export": lambda: dml.export(run, name),
        "run": lambda: dml.export(name, "net"),
        "data": lambda: dml.train(["data=folder", f"data.root='{name}'"]),
        "outputs": lambda: dml.train(["data=digits", f"outputs='{name}'"]),
    }
    for what, call in calls.items():
        with pytest.raises((UserError, OSError)) as raised:
            call()
        assert not isinstance(raised.value, ValueError), what


@pytest.mark.parametrize("name", ["a\0b", "a\0\x1b[2Jb"])
@pytest.mark.parametrize("suffix", ["txt", "csv"])
def test_lists_of_images(run, name, suffix, capsys):
    head = "path\n" if suffix == "csv" else ""
    Path(f"list.{suffix}").write_text(f"{head}good.png\n{name}.png\n")
    assert embed([run, f"list.{suffix}", "x.npz"]) == 1
    assert_one_line(capsys.readouterr().err)


def test_a_name_of_two_lines_makes_no_second_error(run, capsys):
    """A stranger's table cannot write an advice of its own below ours."""
    name = "a.png\nrun this command"
    Path("list.csv").write_text(f'path\ngood.png\n"{name}"\n')
    assert embed([run, "list.csv", "x.npz"]) == 1
    assert_one_line(capsys.readouterr().err)
    Path(f"{name}.png").write_bytes(b"no image")
    assert embed([run, f"{name}.png", "x.npz"]) == 1
    assert_one_line(capsys.readouterr().err)


@pytest.mark.parametrize("name", NAMES)
def test_paths_in_a_file_of_embeddings(run, name, capsys):
    paths = np.array([f"{name}/{number}.png" for number in range(4)])
    np.savez("x.npz", embeddings=np.eye(4, dtype="f"), paths=paths)
    assert search(["x.npz", "0", "-k1"]) == 0
    capsys.readouterr()
    assert search(["x.npz", "0.png", "-k1"]) == 1  # some paths end like it
    assert "query: 0.png does not exist" in capsys.readouterr().err
    assert search(["x.npz", "0", "-k1", "--picture", "x.png"]) == 1
    assert_one_line(capsys.readouterr().err)


def assert_one_line(text: str) -> None:
    (line,) = text.splitlines()
    assert line.startswith("error: ")
    assert line.isprintable() or "\ud83d" in line


@contextmanager
def strict_stdout():
    """The standard output of a terminal in UTF-8, which takes no other bytes as text."""
    stdout = open(1, "w", closefd=False, encoding="utf-8", errors="strict")  # noqa: SIM115
    with stdout, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        yield


@pytest.fixture
def no_utf8(run):
    """A run in a folder whose name is no UTF-8."""
    folder = Path(run)
    digest = folder.name.rpartition("-")[2].encode()
    folder.rename(folder.with_name(os.fsdecode(b"seed0\xff\x9b-" + digest)))


LISTS = {
    "list": lambda: runs([]),
    "json": lambda: runs(["--json"]),
    "best": lambda: runs(["best"]),
    "report": lambda: report(["single", "--no-figures"]),
    "contributed": lambda: report(
        ["single", "--no-figures", "--runs", "x", "--results", "outputs/reports/single_runs.csv"]
    ),
}


def test_a_run_folder_whose_name_is_no_utf8_hides_no_other(no_utf8, run_tiny, capfdbinary):
    run_tiny("protocol.epochs=0", "seed=1")
    for name, command in LISTS.items():
        with strict_stdout():
            assert command() == 0, name
        captured = capfdbinary.readouterr()
        assert captured.out.decode("utf-8"), name
        assert b"Traceback" not in captured.err


def test_a_search_prints_the_bytes_of_a_name(run, capfdbinary):
    name = os.fsdecode(b"q\xff.png")
    Path("good.png").rename(name)
    assert embed([run, name, "x.npz"]) == 0
    capfdbinary.readouterr()
    Image.new("RGB", (8, 8)).save("other.png")
    for words in (["--csv"], []):
        with strict_stdout():
            assert search(["x.npz", "other.png", "-k1", *words]) == 0
        shown = b"q\xff.png" if words else b"q\\udcff.png"
        assert shown in capfdbinary.readouterr().out
