import io
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from dml.cli import search_command
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
        (embed, "run absent x.npz", "images: absent does not exist"),
        (embed, "run empty x.npz", "images: none in empty"),
        (embed, "run list.txt x.npz", "images: absent.png does not exist"),
        (embed, "run fotos x.npz", "images: fotos does not exist; did you mean 'photos'?"),
        (embed, "run two.txt x.npz", "images: 2 of 3 are no files, first: empty is a folder"),
        (embed, "run absent.csv x.npz", "absent.csv"),
        (embed, "timm:test_resnet photos photos.npz", "another name, or add --overwrite"),
        (embed, "run empty/x.png photos.npz", "images: empty/x.png does not exist"),
        (embed, "run photos x.txt", "must be a file that ends in .npz or .parquet"),
        (embed, "run photos list.txt/x.npz", "output: list.txt is not a folder"),
        (search, "absent.npz 0", "embeddings: absent.npz does not exist"),
        (search, "photos.npz 3", "row 3 does not exist; the last one is 2"),
        (search, "fotos.npz 0", "embeddings: fotos.npz does not exist; did you mean 'photos.npz'?"),
        (search, "photos.npz 0 -k 0", "-k: '0' is not a whole number from 1"),
        (search, "single.npz 0", "query: the file has no other image"),
        (search, "photos.npz absent.png", "query: absent.png does not exist; give an image"),
        (search, "photos.npz photos", "query: photos is a folder; name images, such as photos/*"),
        (search, "photos.npz photos/7.png", "did you mean 'photos/"),
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
        (embed, f"run {'x' * 300} x.npz", f"images: {'x' * 300} does not exist"),
        (embed, f"run photos {'x' * 300}/x.npz", "output: " + "x" * 300 + ": File name too long"),
        (search, f"{'x' * 300}.npz 0", "npz cannot be read (File name too long"),
        (search, "photos 0", "embeddings: photos cannot be read (a folder, not a regular file)"),
    ],
)
def test_mistakes_are_one_line(place, capsys, command, words, message):
    np.savez("bare.npz", embeddings=np.eye(2))
    np.savez("single.npz", embeddings=np.eye(1))
    Path("two.txt").write_text("empty\nphotos/0.png\nabsent.png\n")
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
    for row in (0, 1):
        assert f"note: {row}: no neighbors left (the nearest, photos/" in notes
    assert search(words) == 0
    assert capsys.readouterr().out == ""


def test_many_queries_without_neighbors_are_counted(place, capsys, monkeypatch):
    monkeypatch.setattr(search_command, "SHOWN", 1)
    assert search(["photos.npz", "0", "1", "2", "--max-distance", "1e-9", "-k", "1"]) == 0
    notes = capsys.readouterr().err
    assert notes.count("no neighbors left") == 1
    assert "note: and 2 more queries" in notes


def test_of_a_small_file_all_images_are_neighbors(place, capsys):
    """Without -k too, whose default is 10; a new image finds one more than one of the file."""
    shutil.copy("photos/1.png", "new.png")
    for words, number in ((["0"], 2), (["0", "-k", "5"], 2), (["new.png"], 3)):
        assert search(["photos.npz", *words, "--csv"]) == 0
        output, notes = capsys.readouterr()
        assert len(pd.read_csv(io.StringIO(output))) == number
        assert f"note: a query can find {number} images in the file, which are fewer" in notes
    assert search(["photos.npz", "0", "-k", "2"]) == 0
    assert capsys.readouterr().err == ""


def test_a_search_in_another_folder_finds_the_network(place, monkeypatch, capsys):
    """The file names it as it was typed, as seen from its folder or from one above it."""
    Path("below").mkdir()
    shutil.copy("photos.npz", "below/photos.npz")
    shutil.copy("photos/1.png", "below/new.png")
    monkeypatch.chdir("below")
    for file in ("photos.npz", "../photos.npz"):
        assert search([file, "new.png", "-k", "1", "--csv"]) == 0
        found = pd.read_csv(io.StringIO(capsys.readouterr().out))
        assert found["row"].tolist() == [1]
    Path(place, "run").rename(place / "moved")
    assert search(["photos.npz", "new.png", "-k", "1"]) == 1
    err = capsys.readouterr().err
    assert "network: photos.npz was made by the network in run, which is not there" in err
    assert "embed the images again" in err
    assert err.count("\n") == 1


def test_an_output_that_exists_may_take_more_images(place, capsys):
    """It is offered for a file of the same network and images that are listed, and works."""
    Path("more").mkdir()
    Image.effect_noise((8, 8), 99).save("more/new.png")
    assert embed(["run", "more", "photos.npz"]) == 1
    assert "or add --append, which keeps its rows and adds these images" in capsys.readouterr().err
    assert embed(["run", "more", "photos.npz", "--append"]) == 0
    with np.load("photos.npz") as file:
        assert file["paths"].tolist() == [*(f"photos/{n}.png" for n in range(3)), "more/new.png"]


def test_a_file_that_is_replaced_with_more_images_names_append(place, capsys, caplog):
    assert embed(["run", "photos", "photos.npz"]) == 0
    assert "--append" not in caplog.text  # nothing is new
    Image.effect_noise((8, 8), 99).save("photos/new.png")
    assert embed(["run", "photos", "photos.npz", "--float16"]) == 0
    assert "--append" not in caplog.text  # it would refuse
    Image.effect_noise((8, 8), 98).save("photos/newer.png")
    assert embed(["run", "photos", "photos.npz", "--float16"]) == 0
    assert "rows of 4 of these images; --append embeds the other 1 alone" in caplog.text


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
