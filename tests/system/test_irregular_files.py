"""Named pipes, sockets, devices and folders in the place of files: no command waits for them."""

import os
import shutil
import signal
import socket
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

import dml
from dml.core.errors import UserError
from dml.core.regular_files import open_regular, read_regular
from dml.runs.folder.stored_run import read_run
from tests.commands import embed, evaluate, export, report, runs, search, train
from tests.conftest import without_pictures


def make_socket(path):
    with chdir(path.parent), socket.socket(socket.AF_UNIX) as opened:  # their names are short
        opened.bind(path.name)


def make_linked_pipe(path):
    os.mkfifo(path.with_name(f"{path.name}.pipe"))
    path.symlink_to(f"{path.name}.pipe")


KINDS = {
    "pipe": os.mkfifo,
    "linked pipe": make_linked_pipe,
    "socket": make_socket,
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/ptmx"),
    "folder": lambda path: path.mkdir(),
}
# Whoever opens files by `open_regular` refuses every kind if it refuses a pipe. Folders may be
# read by another way.
TWO_KINDS = ("pipe", "folder")


def put(kind, path):
    """Puts something irregular into the place of a file."""
    path = Path(path)
    path.unlink(missing_ok=True)
    KINDS[kind](path)


class Waits(BaseException):  # an Exception would become an error line
    """A command does not end."""


@pytest.fixture(autouse=True)
def _no_waiting():
    def give_up(*more):
        raise Waits

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def runs_and_photos(runs_and_photos, tmp_path_factory):
    """With an export and a report."""
    place = shutil.copytree(runs_and_photos, tmp_path_factory.mktemp("more") / "prepared")
    with chdir(place):
        assert export(["run", "net"]) == 0
        assert report("single --runs outputs --no-figures --out out".split()) == 0  # noqa: SIM905
    return place


FEATURES = "data=features backbone=identity protocol.epochs=1 device=cpu outputs=made"
DOORS = {
    "an image of a folder": (embed, "run photos x.npz", "photos/1.png"),
    "an image": (embed, "run photos/1.png x.npz", "photos/1.png"),
    "a list": (embed, "run list.txt x.npz", "list.txt"),
    "a table of images": (embed, "run list.csv x.npz", "list.csv"),
    "config of a network": (embed, "run photos x.npz", "run/config.yaml"),
    "weights of a network": (
        *(embed, "run photos x.npz"),
        "run/checkpoints/repeat0-fold0/best.pt",
    ),
    "an export": (embed, "net photos x.npz", "net/model.safetensors"),
    "config of an export": (embed, "net photos x.npz", "net/config.yaml"),
    "embeddings": (search, "photos.npz 0 -k 1", "photos.npz"),
    "Parquet": (search, "photos.parquet 0 -k 1", "photos.parquet"),
    "a query": (search, "photos.npz new.png -k 1", "new.png"),
    "scored embeddings": (evaluate, "embeddings=scored.npz", "scored.npz"),
    "config of an evaluation": (evaluate, "run=run", "run/config.yaml"),
    "config of an exported run": (export, "run other", "run/config.yaml"),
    "summary of an exported run": (export, "run other", "run/summary.json"),
    "a table to train on": (
        *(train, "data=folder data.root=list.csv outputs=made device=cpu"),
        "list.csv",
    ),
    "a resumed run": (train, "resume=run", "run/config.yaml"),
    "features": (train, f"{FEATURES} data.root=f.npz", "f.npz"),
    "results of others": (
        *(report, "single --runs outputs --no-figures --results results.csv"),
        "results.csv",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_in_the_place_of_an_index_stays(place, capsys, kind):
    """The index is built in memory then, and a note says so."""
    pytest.importorskip("faiss")
    put(kind, "photos.npz.faiss")
    assert search(["photos.npz", "0", "-k", "1", "--index"]) == 0
    assert "it is not saved" in capsys.readouterr().err


SEARCHED = ("a list", "an image of a folder", "an image")  # may be folders
DOORS_AND_KINDS = [
    *((door, "pipe") for door in DOORS),
    *((door, "folder") for door in DOORS if door not in SEARCHED),
    *(("an image", kind) for kind in KINDS if kind not in TWO_KINDS),
    *(("embeddings", kind) for kind in KINDS if kind not in TWO_KINDS),
]


@pytest.mark.parametrize(("door", "kind"), DOORS_AND_KINDS)
def test_one_line(place, capsys, door, kind):
    main, words, file = DOORS[door]
    if file.endswith("parquet"):
        pytest.importorskip("pyarrow")
    put(kind, file)
    assert main(words.split()) in (1, 2)
    err = capsys.readouterr().err
    lines = [line for line in err.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1, err
    assert lines[0].startswith("error: ")


LISTS = (
    (runs, "--runs outputs", "running|stopped|damaged"),
    (runs, "best --runs outputs", ""),
    (report, "single --runs outputs --no-figures", ""),
)


@pytest.mark.parametrize("kind", TWO_KINDS)
@pytest.mark.parametrize("name", ["config.yaml", "summary.json", "history.csv", "train.log"])
def test_one_folder_does_not_stop_the_lists(place, capsys, name, kind):
    first, second = sorted(Path("outputs").glob("*/*/seed*"))
    if name != "summary.json":
        (first / "summary.json").unlink()
    put(kind, first / name)
    stored = read_run(first)
    assert stored.state == "damaged"
    assert len(stored.problem.splitlines()) == 1
    for main, words, _ in LISTS:
        assert main(words.split()) == 0
        assert second.name.rpartition("-")[2] in capsys.readouterr().out or main is report
    ids = [path.name.rpartition("-")[2] for path in (first, second)]
    assert runs(["compare", *ids, "--runs", "outputs"]) in (0, 1)
    assert "Traceback" not in capsys.readouterr().err


FILES = ("history.csv", "train.log", "dataset.json", "run_id", "checkpoints/repeat0-fold0/best.pt")


@pytest.mark.parametrize("kind", ["pipe", "zeros"])
@pytest.mark.parametrize("name", FILES)
def test_a_run_that_continues(place, name, kind):
    (place / "run" / "summary.json").unlink()
    (place / "run" / "checkpoints/repeat0-fold0/result.json").unlink()
    put(kind, place / "run" / name)
    message = "continued"
    try:
        with without_pictures():
            dml.runs.experiment.resume("run")
    except (UserError, OSError) as error:
        message = str(error)
    assert len(message.splitlines()) == 1


def test_what_a_shell_passes_is_read(place, capfd):
    """`dml embed run /dev/stdin x.npz` and `dml embed run <(ls photos/*.png) x.npz`."""
    read, write = os.pipe()
    os.write(write, b"photos/0.png\nphotos/2.png\n")
    os.close(write)
    try:
        assert embed(["run", f"/dev/fd/{read}", "x.npz"]) == 0
    finally:
        os.close(read)
    with np.load("x.npz") as file:
        assert file["paths"].tolist() == ["photos/0.png", "photos/2.png"]
    assert embed(["run", "/dev/zero", "y.npz"]) == 1


def test_links_and_files_are_read(tmp_path):
    (tmp_path / "file").write_bytes(b"1")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"1"
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"1"
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")
