"""Every command with every kind of existing file and folder in the place of its output.

Afterwards all bytes of what existed are there, or it was the command's own.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from studies import check_loss, draw_concepts, show_field, show_proxies
from tests.commands import embed, evaluate, export, report, runs, search
from tests.forked import context

RUN, FILE = "run=run device=cpu", "embeddings=scored.npz device=cpu"
# name → command, words, the output that the words name, files that it writes
COMMANDS = {
    "embed": (embed, "run photos OUT", "x.npz"),
    "embed to parquet": (embed, "run photos OUT", "x.parquet"),
    "search": (search, "photos.npz photos/1.png -k 1 --picture OUT", "x.png"),
    "export": (export, "run OUT", "net"),
    "evaluate a file": (evaluate, FILE, "scored.evaluation.json"),
    "evaluate a run": (evaluate, RUN, "run/evaluation.json"),
    "embeddings of a run": (evaluate, f"{RUN} save=float32", "run/embeddings.npz"),
    "report page": (report, "single --runs outputs --no-figures --out out", "out/single.html"),
    "report text": (report, "single --runs outputs --no-figures --out out", "out/single.md"),
    "report table": (report, "single --runs outputs --no-figures --out out", "out/single.csv"),
    "report runs": (report, "single --runs outputs --no-figures --out out", "out/single_runs.csv"),
    "curves": (runs, "compare first second --runs outputs", "outputs/comparisons/PAIR.png"),
    "field": (show_field.main, "--out OUT", "x.png"),
    "proxies": (show_proxies.main, "digits --stages 1 --out out", "out/digits.png"),
    "concepts": (draw_concepts.main, "--out out folds", "out/folds.png"),
    "check_loss page": (check_loss.main, "photos.npz loss=ms --outputs out", "out/yours_page.md"),
    "check_loss picture": (
        *(check_loss.main, "photos.npz loss=ms --outputs out"),
        "out/yours_page/scores.png",
    ),
}  # fmt: skip
ALLOWED = (
    ("lost link", "export"),  # the folder is made where the link leads
)
NOTES = ("curves",)  # the table is printed, a note says that nothing is drawn


def foreign(place):
    """Kinds of what may exist: name → a function that makes it."""
    image = Image.new("RGB", (4, 4))

    def pipe(path):
        os.mkfifo(path)

    def folder(path):
        path.mkdir()
        (path / "README.md").write_text("mine")
        (path / "config.yaml").write_text("mine: 1")

    def link(path):
        (place / "linked").write_text("mine")
        path.symlink_to(place / "linked")

    return {
        "text": lambda path: path.write_text("mine"),
        "empty": lambda path: path.write_bytes(b""),
        "json": lambda path: path.write_text('{"metrics": {}, "name": "other"}'),
        "picture": lambda path: image.save(path, format="png"),
        "embeddings": lambda path: shutil.copy(place / "scored.npz", path),
        "table": lambda path: path.write_text("path,label\na.png,1\n"),
        "page": lambda path: path.write_text("<!DOCTYPE html>\n<title>mine</title>"),
        "folder": folder,
        "pipe": pipe,
        "link": link,
        "lost link": lambda path: path.symlink_to("nowhere"),
    }


KINDS = [*foreign(Path())]
# All commands ask `check_output` or, `export`, look themselves: one of each with every kind. Others
# with what is no file, and with files that are most like their own.
WITH_EVERY_KIND = ("embed", "export")
LIKE_ITS_OWN = {
    ".npz": "embeddings",
    ".parquet": "embeddings",
    ".png": "picture",
    ".json": "json",
    ".html": "page",
    ".md": "page",
    ".csv": "table",
}


def kinds_of(name):
    if name in WITH_EVERY_KIND:
        return KINDS
    own = LIKE_ITS_OWN[Path(COMMANDS[name][2].replace("OUT", "x.png")).suffix]
    return ["text", "empty", "folder", "lost link", own]


# Every command with every kind; those that say least are left to `make soak`.
PAIRS = [
    pytest.param(name, kind, marks=() if kind in kinds_of(name) else pytest.mark.soak)
    for name in COMMANDS
    for kind in KINDS
]


def snapshot(place):
    """What exists: name → kind and bytes."""
    found = {}
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes()
        else:
            found[name] = path.lstat().st_mode
    return found


def output_of(name):
    main, words, output = COMMANDS[name]
    if "PAIR" in output:
        ids = [path.name.rpartition("-")[2] for path in sorted(Path("outputs").glob("*/*/seed*"))]
        output = output.replace("PAIR", "-".join(ids))
    return main, words.replace("OUT", output).split(), Path(output)


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_what_exists_stays(place, capsys, name, kind):
    if name == "embed to parquet":
        pytest.importorskip("pyarrow")
    main, words, output = output_of(name)
    output.parent.mkdir(parents=True, exist_ok=True)
    if output.is_file():
        output.unlink()  # of the preparation
    foreign(place)[kind](output)
    if (kind, name) in ALLOWED:
        return
    before = snapshot(place)
    status = main(words)
    captured = capsys.readouterr()
    after = snapshot(place)
    changed = {path for path in before if after.get(path) != before[path]}
    assert not {path for path in changed if not path.endswith(".lock")}
    if name in NOTES:
        assert (status, "note: the curves cannot be drawn" in captured.out) == (0, True)
        return
    assert status != 0
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert set(after) == set(before)  # nothing was done before


TRAIN = ("check_loss page", "check_loss picture", "proxies")  # for minutes
OWN = [name for name in COMMANDS if name not in TRAIN]


@pytest.mark.parametrize("name", OWN)
def test_its_own_is_replaced(place, capsys, name):
    if name == "embed to parquet":
        pytest.importorskip("pyarrow")
    main, words, output = output_of(name)
    for _ in range(2):
        assert main(words) == 0
        assert output.exists()
        assert "note: the curves cannot" not in capsys.readouterr().out


OTHERS = {
    "other photos": "run others OUT",
    "another network": "other photos OUT",
    "a dataset": "run data=digits OUT",
    "another model": "run photos OUT --fold 0 --repeat 1",
}


@pytest.mark.parametrize("case", OTHERS)
def test_embeddings_of_another_origin_stay(place, capsys, case):
    shutil.copytree("photos", "others")
    shutil.copytree("run", "other")
    assert embed(["run", "photos", "photos.npz", "--overwrite"]) == 0
    before = Path("photos.npz").read_bytes()
    assert embed(OTHERS[case].replace("OUT", "photos.npz").split()) == 1
    message = capsys.readouterr().err
    assert "choose another name, or add --" in message
    assert message.endswith("--overwrite\n")
    assert Path("photos.npz").read_bytes() == before
    assert not list(place.glob(".photos*"))
    if case == "other photos":
        assert embed(["run", "others", "photos.npz", "--overwrite"]) == 0


def test_embeddings_of_the_same_origin_are_replaced(place):
    assert embed(["run", "photos", "photos.npz", "--overwrite"]) == 0
    Image.new("RGB", (8, 8)).save("photos/9.png")
    assert embed([str(place / "run"), "photos/../photos", "photos.npz", "--float16"]) == 0
    with np.load("photos.npz") as file:
        assert len(file["embeddings"]) == 4


def test_a_picture_of_another_search_stays(place):
    shutil.copy("photos.npz", "other.npz")
    assert search(["photos.npz", "0", "-k", "1", "--picture", "x.png"]) == 0
    before = Path("x.png").read_bytes()
    assert search(["other.npz", "0", "-k", "1", "--picture", "x.png"]) == 1
    assert Path("x.png").read_bytes() == before
    assert search(["other.npz", "0", "-k", "1", "--picture", "x.png", "--overwrite"]) == 0


def test_a_forgotten_word(place):
    before = snapshot(place)
    for words in ("photos.npz 0 --picture photos.npz", "photos.npz 0 --picture photos/1.png"):
        assert search([*words.split(), "-k", "1"]) == 1
    assert (
        search(
            ["photos.npz", "photos/1.png", "-k", "1", "--picture", "photos/1.png", "--overwrite"]
        )
        == 1
    )
    assert snapshot(place) == before


def test_the_folder_beside_embeddings(place, capsys):
    """It may be a user's, a link, or hold links that somebody has planted."""
    users = place / ".e4.npz.partial"
    users.mkdir()
    (users / "notes.txt").write_text("mine")
    assert embed(["run", "photos", "e4.npz"]) == 0
    assert {path.name for path in users.iterdir()} == {"notes.txt"}
    (place / "elsewhere").mkdir()
    (place / ".e5.npz.partial").symlink_to("elsewhere")
    (place / ".e6.npz.partial").write_text("mine")
    capsys.readouterr()
    for name in ("e5.npz", "e6.npz"):
        assert embed(["run", "photos", name]) == 1
        assert "is no folder of this command" in capsys.readouterr().err
        assert not Path(name).exists()
    assert not list((place / "elsewhere").iterdir())


@pytest.mark.parametrize("plant", ["symlink", "hard link", "pipe", "lock"])
def test_links_in_the_folder_beside_embeddings(place, plant, capsys):
    victim = place / "victim"
    victim.write_text("mine")
    process = context().Process(target=_die_while_embedding)
    process.start()
    process.join()
    (rows,) = (path for path in Path(".e.npz.partial").iterdir() if len(path.name) == 64)
    if plant == "lock":
        rows = rows.with_name("run.lock")
    rows.unlink()
    if plant == "hard link":
        os.link(victim, rows)
    elif plant == "pipe":
        os.mkfifo(rows)
    else:
        rows.symlink_to(victim)
    assert embed(["run", "photos", "e.npz"]) == 1
    assert victim.read_text() == "mine"
    assert capsys.readouterr().err.startswith("error: output")


def _die_while_embedding():
    import dml.runs.embed_images.rows as module

    def stop(*more):
        os._exit(1)

    module.show_progress = stop
    embed(["run", "photos", "e.npz"])


def test_a_report_does_not_replace_what_it_reads(place):
    words = ["single", "--runs", "outputs", "--no-figures", "--out", "out"]
    assert report(words) == 0
    before = Path("out/single_runs.csv").read_bytes()
    assert report([*words, "--results", "out/../out/single_runs.csv", "--overwrite"]) == 1
    assert Path("out/single_runs.csv").read_bytes() == before


@pytest.mark.parametrize("name", ["../../evil", "/tmp/evil", "a/b", ""])
def test_names_are_names(place, capsys, name):
    before = snapshot(place)
    assert check_loss.main(["photos.npz", "loss=ms", "--name", name]) == 1
    assert "--name: " in capsys.readouterr().err
    assert snapshot(place) == before
