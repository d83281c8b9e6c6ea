"""Paths without a name of their own in every argument: the current folder, its parent, the root.

A run may be the current folder; whatever cannot be meant ends in one line.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dml.cli import program
from tests.conftest import TINY, compose_config, run_config, without_pictures

sys.path.append(str(Path(__file__).parents[2] / "scripts"))  # its `clone`
from scripts import check_fidelity, rehearse
from studies import check_loss, compare, draw_concepts, draw_emoji, show_field, show_proxies
from tests.commands import embed

SCRIPTS = {
    "rehearse": rehearse.main,
    "check_loss": check_loss.main,
    "compare": compare.main,
    "check_fidelity": check_fidelity.main,
    "draw_concepts": draw_concepts.main,
    "draw_emoji": draw_emoji.main,
    "show_field": show_field.main,
    "show_proxies": show_proxies.main,
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with a run, photos, and their embeddings, which each test copies."""
    place, here = tmp_path_factory.mktemp("prepared"), Path.cwd()
    os.chdir(place)
    try:
        with without_pictures():
            _, folder = run_config(compose_config("outputs=outputs", *TINY, "protocol.epochs=1"))
        shutil.copytree(folder, "run")
        Path("photos").mkdir()
        for number in range(3):
            Image.effect_noise((8, 8), 50 * number + 10).save(f"photos/{number}.png")
        assert embed(["run", "photos", "photos.npz"]) == 0
        np.savez("scored.npz", embeddings=np.eye(4), labels=[0, 0, 1, 1])
    finally:
        os.chdir(here)
    return place


@pytest.fixture
def run(prepared, tmp_path, monkeypatch, capsys):
    """Runs a line in a folder of a copy; returns the exit status and the lines of errors."""
    shutil.copytree(prepared, tmp_path / "here")

    def run_line(line, folder="."):
        monkeypatch.chdir(tmp_path / "here" / folder)
        words = shlex.split(line)
        is_script = words[0] in SCRIPTS
        monkeypatch.setattr("sys.argv", words if is_script else ["dml", *words])
        status = SCRIPTS[words[0]]() if is_script else program.main()
        return status, capsys.readouterr().err.splitlines()

    return run_line


@pytest.fixture
def files(tmp_path):
    """Lists what there is, without locks."""

    def list_files():
        return {path for path in tmp_path.rglob("*") if path.suffix != ".lock"}

    return list_files


# A line that works, the folder in which it is typed, what it writes.
INSIDE = [
    ("evaluate run=. device=cpu", "run", "run/evaluation.json"),
    ("evaluate run=./ device=cpu save=float16", "run", "run/embeddings.npz"),
    ("evaluate run=.. device=cpu", "run/checkpoints", "run/evaluation.json"),
    ("embed . ../photos x.npz", "run", "run/x.npz"),
    ("embed ./ ../photos/ ../x.npz", "run", "x.npz"),
    ("embed .. ../../photos x.npz", "run/checkpoints", "run/checkpoints/x.npz"),
    ("embed ../run . x.npz", "photos", "photos/x.npz"),
    ("export . net", "run", "run/net/model.safetensors"),
    ("export . ../net/", "run", "net/model.safetensors"),
    ("export .. net", "run/checkpoints", "run/checkpoints/net/config.yaml"),
    ("search photos.npz photos/0.png -k 1 --picture run/../x.png", ".", "x.png"),
    ("search ../photos.npz 0 -k 1 --csv", "run", "photos.npz"),
    ("report single --runs ../outputs --no-figures --out .", "run", "run/single.html"),
    ("report single --runs . --no-figures", "outputs", "outputs/reports/single.html"),
    ("runs compare . ../run --runs ..", "run", "comparisons/run-run.png"),
    ("train resume=.", "run", "run/summary.json"),
    ("train resume=../", "run/checkpoints", "run/summary.json"),
    ("show_field --out ./x.png", "run", "run/x.png"),
    ("draw_concepts folds --out ..", "run", "folds.png"),
    ("embed run/ photos/ x.npz", ".", "x.npz"),
    ("evaluate run=run/ device=cpu", ".", "run/evaluation.json"),
    ("report single --runs outputs/ --out out/ --no-figures", ".", "out/single.html"),
]


@pytest.mark.parametrize(("line", "folder", "written"), INSIDE)
def test_the_current_folder_and_its_parents(run, tmp_path, line, folder, written):
    status, errors = run(line, folder)
    assert status == 0, errors
    assert (tmp_path / "here" / written).exists()


def test_a_search_in_the_folder_of_a_run(run, tmp_path):
    assert run("embed . ../photos x.npz", "run")[0] == 0
    assert run("search x.npz ../photos/0.png -k 1 --picture x.png", "run")[0] == 0
    assert (tmp_path / "here/run/x.png").exists()


# Lines that expect a run, a folder or a file at @ which is not there.
FOLDERS = [
    "embed @ photos x.npz",
    "export @ net",
    "evaluate run=@ device=cpu",
    "runs compare @ run --runs outputs",
    "runs rm @ --runs outputs",
    "train resume=@",
    "draw_emoji @ --out x.png",
    "prepare cub --root data --archive @",
    "show_proxies mnist --root @ --out out",
    "check_fidelity @",
]
FILES = [
    "embed run photos @",
    "search @ 0 -k 1",
    "search photos.npz @ -k 1",
    "search photos.npz 0 -k 1 --picture @",
    "export run @",
    "evaluate embeddings=@ device=cpu",
    "report single --runs outputs --no-figures --results @",
    "train data=digits device=cpu params=@",
    "train data=features data.root=@ device=cpu",
    "train data=digits device=cpu backbone.weights=@",
    "check_loss @ loss=ms",
    "show_field --out @",
    "draw_emoji run --out @",
]
# Lines in which @ may be . or .., but not empty.
PLACES = [
    "train data=digits device=cpu outputs=@",
    "train data=folder data.root=@ device=cpu",
    "evaluate data=digits device=cpu outputs=@",
    "evaluate data=folder data.root=@ device=cpu",
    "embed run @ x.npz",
    "report single --runs @",
    "report single --runs outputs --no-figures --out @",
    "runs --runs @",
    "runs clean --runs @",
    "prepare folder --root @",
    "prepare cub --root @",
    "plan mft_table2 --runs @",
    "rehearse mft_table2 --outputs @",
    "check_loss photos.npz loss=ms --outputs @",
    "show_proxies digits --out @",
    "draw_concepts folds --out @",
    "compare heads_emoji @",
    "compare heads_emoji --outputs @",
    "compare heads_emoji --pages @",
]


def put(place, line):
    """Returns a line with a place, quoted where it is a word of its own."""
    alone = "=@" not in line
    return line.replace("@", place or "''" if alone else place)


@pytest.mark.parametrize("place", ["", ".", "..", "/"])
@pytest.mark.parametrize("line", [*FOLDERS, *FILES])
def test_what_cannot_be_meant(run, files, line, place):
    before = files()
    status, errors = run(put(place, line))
    assert status in (1, 2)
    assert len(errors) <= 1, errors
    assert not [error for error in errors if "Traceback" in error]
    assert files() == before


@pytest.mark.parametrize("line", PLACES)
def test_an_empty_word_is_not_the_current_folder(run, files, line):
    before = files()
    status, errors = run(put("", line))
    assert status == 2
    assert "is empty; give" in errors[-1]
    assert files() == before


def test_a_run_is_removed_from_inside(run, tmp_path):
    assert run("runs rm . --runs .. --yes", "run")[0] == 0
    assert not (tmp_path / "here" / "run").exists()
    assert (tmp_path / "here" / "photos").exists()


def test_python_calls_refuse_empty_paths(tmp_path, monkeypatch):
    import dml
    from dml.core.errors import ConfigError

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="outputs: is empty"):
        dml.train(["data=digits", "outputs="])
