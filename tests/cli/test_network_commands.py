import io

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from tests.commands import embed, export, search


@pytest.fixture
def place(run_tiny, tmp_path, monkeypatch):
    """The current folder, with a run, three photos and their embeddings."""
    _, folder = run_tiny("protocol.epochs=1")
    monkeypatch.chdir(tmp_path)
    folder.rename("run")
    for number in range(3):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.effect_noise((8, 8), 50 * number + 10).save(f"photos/{number}.png")
    assert embed(["run", "photos", "photos.npz"]) == 0
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.txt").write_text("absent.png\n")
    return tmp_path


def test_from_a_run_to_neighbors(place, capsys):
    assert export(["run", "net"]) == 0
    assert embed(["net", "photos", "again.npz", "--float16", "--batch-size", "2"]) == 0
    assert capsys.readouterr().out.endswith("again.npz  3 images, 8 dimensions\n")
    with np.load("photos.npz") as one, np.load("again.npz") as other:
        np.testing.assert_allclose(one["embeddings"], other["embeddings"], atol=1e-3)
    words = ["photos.npz", "photos/1.png", "-k", "2", "--picture", "x.png"]
    assert search(words) == 0
    assert "photos/0.png" in capsys.readouterr().out
    assert (place / "x.png").is_file()
    assert search([*words, "--csv"]) == 0
    found = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert sorted(found["row"]) == [0, 2]


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        (embed, "nowhere photos x.npz", "run: nowhere is not a run folder"),
        (embed, "timm:resnot50 photos x.npz", "did you mean 'resnet50'?"),
        (embed, "run absent x.npz", "images: absent is no folder, image or list of paths"),
        (embed, "run empty x.npz", "images: none in empty"),
        (embed, "run list.txt x.npz", "images: 1 of 1 do not exist, first absent.png"),
        (embed, "run photos x.txt", "must be a file that ends in .npz or .parquet"),
        (embed, "run photos list.txt/x.npz", "output: list.txt is not a folder"),
        (search, "absent.npz 0", "embeddings: absent.npz cannot be read"),
        (search, "photos.npz 3", "row 3 does not exist; the last one is 2"),
        (search, "photos.npz 0 -k 3", "k: 3 is not between 1 and 2"),
        (search, "photos.npz 0 -k 0", "k: 0 is not between 1 and 2"),
        (search, "photos.npz absent.png", "first absent.png"),
        (search, "photos.npz 0 --classify", "classify: photos.npz has no labels"),
        (search, "photos.npz 0 --classify --picture x.png", "--picture: shows neighbors"),
        (
            search,
            "photos.npz 0 --max-distance 0",
            "0 leaves out all neighbors; give a number above 0",
        ),
        (search, "photos.npz 0 --max-distance nan", "'nan' is not a distance of at least 0"),
        (search, "bare.npz photos/0.png", "does not say which network made it"),
        (export, "photos net", "run: photos is not a run folder"),
        (export, "run list.txt", "folder: list.txt is not a folder"),
        (export, "run list.txt/net", "folder: list.txt/net: Not a directory"),
        (export, f"run {'x' * 300}", "File name too long"),
        (export, f"{'x' * 300} net", "is not a run folder"),
        (embed, f"{'x' * 300} photos x.npz", "is not a run folder"),
        (embed, f"run {'x' * 300} x.npz", "is no folder, image or list of paths"),
        (embed, f"run photos {'x' * 300}/x.npz", "output: " + "x" * 300 + ": File name too long"),
        (search, f"{'x' * 300}.npz 0", "npz cannot be read (File name too long"),
        (search, "photos 0", "embeddings: photos cannot be read (a folder, not a regular file)"),
    ],
)
def test_mistakes_are_one_line(place, capsys, command, words, message):
    np.savez("bare.npz", embeddings=np.eye(2))
    capsys.readouterr()
    assert command(words.split()) in (1, 2)
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def test_a_search_that_leaves_nothing(place, capsys):
    words = ["photos.npz", "0", "1", "-k", "2", "--max-distance", "1e-9", "--picture", "x.png"]
    assert search([*words, "--csv"]) == 0
    output, notes = capsys.readouterr()
    assert len(pd.read_csv(io.StringIO(output))) == 0
    assert "note: 4 of 4 neighbors are left out, at a distance of 1e-09 or beyond" in notes
    assert search(words) == 0
    assert capsys.readouterr().out == ""


def test_classes_of_queries(place, capsys):
    np.savez("x.npz", embeddings=np.array([[0.0], [1.0], [5.0]]), labels=["a", "a", "b"])
    assert search(["x.npz", "0", "2", "-k", "1", "--classify", "--max-distance", "2", "--csv"]) == 0
    table = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert table["neighbors"].tolist() == ["a", "unknown"]
    assert table["class_mean"].tolist() == ["a", "unknown"]
    assert search(["x.npz", "0", "-k", "1", "--classify"]) == 0
    assert "neighbor_distance" in capsys.readouterr().out


def test_an_index_alone_takes_no_other_word(place, capsys):
    pytest.importorskip("faiss")
    np.savez("x.npz", embeddings=np.random.default_rng(0).standard_normal((50, 3)))
    outputs = []
    for words in ("--index 3", "3 --index", "3 --index=Flat", "--index -- 3", "--index=auto 3"):
        assert search(["x.npz", "-k", "2", "--csv", *words.split()]) == 0
        outputs.append(capsys.readouterr().out)
    assert len(set(outputs)) == 1
    assert search(["x.npz", "3", "--index="]) == 2
    assert "index: is empty" in capsys.readouterr().err


@pytest.mark.parametrize(("device", "kept"), [("cpu", True), ("cuda", False)])
def test_embed_keeps_freed_memory_on_a_cpu_alone(place, monkeypatch, device, kept):
    calls = []
    monkeypatch.setattr("dml.core.memory.keep_freed_memory", lambda: calls.append(device))
    monkeypatch.setattr("dml.training.device.resolve_device", lambda name: torch.device(device))
    assert embed(["run", "photos", "kept.npz"]) == 0
    assert bool(calls) == kept
