"""Scores of classes that a network was trained on are no scores of unseen classes."""

import json
from pathlib import Path

import numpy as np
import pytest

import dml
from tests import commands
from tests.data.trees import class_folders

CLASSES = [f"class_{number}" for number in range(8)]
RUN = (
    *("data=folder", "data.reader.split_seed=null", "protocol=traditional", "protocol.epochs=1"),
    *("backbone=small_cnn", "transform.size=16", "data.batch_size=8", "loss=contrastive"),
    *("device=cpu", "backbone.width=4", "embedder.size=8"),
)


def train(*words: str) -> Path:
    return Path(dml.train([*RUN, *words])["folder"])


def write_list(root: Path, name: str, classes: list[str], splits: tuple[str, ...]) -> Path:
    lines = ["path,label,split"]
    for label in classes:
        for item in range(4):
            lines.append(f"{label}/{item}.jpg,{label},{splits[item % len(splits)]}")
    path = root / name
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[Path, Path]:
    """A run on the first half of eight classes of photos, and the folder of all of them."""
    root = tmp_path_factory.mktemp("seen")
    photos = class_folders(root / "photos", classes=8, per_class=4)
    return train(f"data.root={photos}", f"outputs={root}/outputs"), photos


@pytest.mark.promise(
    "guides/own_images.md",
    "classes are scored that the network was trained on: a note counts them",
)
@pytest.mark.parametrize("splits", [("query", "gallery"), ("test",)])
def test_lists_without_training_images_are_evaluated(run, capsys, splits):
    folder, photos = run
    unseen = write_list(photos, "unseen.csv", CLASSES[4:], splits)
    assert commands.evaluate([f"run={folder}", f"data.root={unseen}"]) == 0
    assert "trained on" not in capsys.readouterr().out
    mixed = write_list(photos, "mixed.csv", CLASSES[2:6], splits)
    assert commands.evaluate([f"run={folder}", f"data.root={mixed}"]) == 0
    shown = capsys.readouterr().out
    assert "note: data: 2 of 4 classes have names of classes that were trained on (class_2" in shown


def test_lists_without_training_images_are_not_trained_on(run, capsys):
    _, photos = run
    path = write_list(photos, "unseen.csv", CLASSES[4:], ("query", "gallery"))
    others = [word for word in RUN if not word.startswith("protocol=")]
    for protocol in ("traditional", "validation"):
        assert commands.train([*others, f"protocol={protocol}", f"data.root={path}"]) == 1
        assert "'photos' has no training images; add some" in capsys.readouterr().err


def test_the_scored_images_of_the_run_itself_are_unseen(run, capsys):
    assert commands.evaluate([f"run={run[0]}"]) == 0
    assert "trained on" not in capsys.readouterr().out


def test_embedded_images_are_compared_with_the_classes_of_the_network(run, tmp_path, capsys):
    folder, photos = run
    file = tmp_path / "all.npz"
    dml.embed(folder, photos, file)
    assert commands.evaluate([f"embeddings={file}"]) == 0
    assert "note: data: 4 of 8 classes have names of classes that" in capsys.readouterr().out
    (folder / "dataset.json").rename(folder / "kept.json")
    try:
        assert commands.evaluate([f"embeddings={file}", "overwrite=true"]) == 0
    finally:
        (folder / "kept.json").rename(folder / "dataset.json")
    assert "trained on" not in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"trained_classes": 3}'])
def test_a_damaged_list_of_trained_classes_does_not_stop_an_evaluation(run, capsys, content):
    folder, photos = run
    mixed = write_list(photos, "mixed.csv", CLASSES[2:6], ("test",))
    kept = (folder / "dataset.json").read_text()
    (folder / "dataset.json").write_text(content)
    try:
        assert commands.evaluate([f"run={folder}", f"data.root={mixed}", "overwrite=true"]) == 0
    finally:
        (folder / "dataset.json").write_text(kept)
    assert "trained on" not in capsys.readouterr().out


def test_rows_of_the_training_split_are_counted(tmp_path, capsys):
    splits = np.array(["train", "test", "test", "train"])
    rows = {"embeddings": np.eye(4, dtype="f4"), "labels": np.array([0, 1, 1, 0])}
    np.savez(tmp_path / "rows.npz", splits=splits, **rows)
    assert commands.evaluate([f"embeddings={tmp_path}/rows.npz"]) == 0
    assert "note: embeddings: 2 of 4 rows are of the split train" in capsys.readouterr().out


def test_a_network_of_all_classes_is_scored_on_other_images(run, tmp_path, capsys):
    _, photos = run
    words = ("protocol=all_classes", f"data.root={photos}", f"outputs={tmp_path}")
    folder = train(*words)
    path = write_list(photos, "some.csv", CLASSES[:2], ("query", "gallery"))
    assert commands.evaluate([f"run={folder}", f"data.root={path}"]) == 0
    assert "note: data: 2 of 2 classes have names of classes that" in capsys.readouterr().out


def test_a_network_that_was_not_trained_has_seen_nothing(run, tmp_path):
    _, photos = run
    words = ("method=untrained", f"data.root={photos}", f"outputs={tmp_path}")
    folder = train(*words, "protocol.epochs=0", "embedder.size=null")
    assert "trained_classes" not in json.loads((folder / "dataset.json").read_text())
