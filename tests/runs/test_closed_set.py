"""Runs of closed sets: classes seen in training, which never stand beside unseen ones."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import dml
from dml.config.check import check
from dml.core.errors import ConfigError
from dml.data.closed_set import Shares, divide_classes
from dml.data.readers.folder import read_folder
from dml.retrieval import class_mean_accuracy, neighbor_accuracy
from tests import commands
from tests.data.trees import class_folders
from tests.runs.small_runs import rows

RUN = (
    *("protocol=closed_set", "data=folder", "protocol.epochs=1", "backbone=small_cnn"),
    *("transform.size=16", "data.batch_size=8", "loss=contrastive", "device=cpu"),
    *("backbone.width=4", "embedder.size=8"),
)
GLYPHS = (
    *("protocol=closed_set", "data=glyphs", "data.reader.classes=8", "data.reader.per_class=8"),
    *("device=cpu", "backbone.width=4", "embedder.size=8", "data.batch_size=8"),
    *("data.eval_batch_size=200", "protocol.steps_per_epoch=2", "protocol.epochs=1"),
)
ACCURACIES = ("accuracy_class_mean", "accuracy_neighbors")


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    return class_folders(tmp_path_factory.mktemp("closed") / "photos", classes=4, per_class=10)


@pytest.fixture(scope="module")
def run(photos) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dml.runs.experiment.draw_curves", lambda *more: None)
        patch.setattr("dml.runs.job_scores.draw_test_images", lambda *more, **options: None)
        words = (*RUN, f"data.root={photos}", f"outputs={photos.parent}/outputs")
        return Path(dml.train(words)["folder"])


def summary_of(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


def test_accuracies_are_by_the_training_images_in_evaluation_mode(run, photos):
    """Embedded once more by the loaded network, image by image."""
    embedder, transform = dml.load(run)
    assert not embedder.training
    index = divide_classes(read_folder(photos, 0, shared_classes=True), Shares(0.2, 0.2, 0))
    embedded = {}
    from dml.data.decode import load_image

    for role in ("train", "test"):
        part = np.flatnonzero(index.roles == role)
        images = [transform(load_image(index.images[row], apply_orientation=True)) for row in part]
        with torch.no_grad():
            embedded[role] = embedder(torch.stack(images)), index.labels[part]
    parts = (*embedded["test"], *embedded["train"])
    metrics = summary_of(run)["metrics"]
    assert metrics["accuracy_class_mean"]["mean"] == class_mean_accuracy(*parts)
    assert metrics["accuracy_neighbors"]["mean"] == neighbor_accuracy(*parts, 5)
    assert metrics["queries"]["mean"] == 8


def test_the_summary_names_seen_classes(run):
    summary = summary_of(run)
    assert summary["classes_tested"] == "8 images of 4 classes seen in training"
    assert summary["protocol"] == "closed_set"
    assert summary["untrained"].keys() >= {*ACCURACIES}
    assert "accuracy_class_mean" not in rows(run)[0]  # training images are not embedded each time


def test_evaluate_gives_the_scores_of_the_run(run, photos, capsys):
    assert commands.evaluate([f"run={run}", f"outputs={photos.parent}/again"]) == 0
    shown = capsys.readouterr().out
    assert "contrastive on photos, classes seen in training" in shown
    assert "no scores of unseen classes" not in shown
    (path,) = Path(photos.parent, "again").rglob("evaluation.json")
    metrics = json.loads(path.read_text())["metrics"]
    for name, value in summary_of(run)["metrics"].items():
        assert metrics[name] == value["mean"], name
    assert "accuracy_loss" not in metrics  # a loss of pairs has no logits


@pytest.mark.parametrize(
    "words",
    [
        ("loss=proxy_anchor", "method=plain"),
        ("loss=soft_triple", "method=plain"),
        ("loss=proxy_nca", "method=metrix", "optim.lr=0.05"),
    ],
    ids=["proxy_anchor", "soft_triple", "proxy_nca+metrix"],
)
def test_evaluate_prints_the_accuracy_by_logits_of_the_loss(photos, tmp_path, words, capsys):
    """By the most similar proxy, image by image, from the loss that `dml.load` returns."""
    training = (*RUN, f"data.root={photos}", f"outputs={tmp_path}", *words)
    folder = Path(dml.train(training)["folder"])
    assert commands.evaluate([f"run={folder}", f"outputs={tmp_path}/again"]) == 0
    assert "accuracy (loss)" in capsys.readouterr().out
    (path,) = Path(tmp_path, "again").rglob("evaluation.json")
    embedder, transform, loss = dml.load(folder, loss=True)
    index = divide_classes(read_folder(photos, 0, shared_classes=True), Shares(0.2, 0.2, 0))
    tested = np.flatnonzero(index.roles == "test")
    right = 0
    for row in tested:
        image = Image.open(index.images[row])
        with torch.no_grad():
            probabilities = loss.probabilities(embedder(transform(image)[None]))[0]
        class_folder = Path(index.images[row]).parent.name
        right += loss.classes[int(probabilities.argmax())] == class_folder
    assert json.loads(path.read_text())["metrics"]["accuracy_loss"] == right / len(tested)


@pytest.fixture
def mixed(run, photos, tmp_path) -> tuple[Path, Path]:
    """A run folder, and its images, of which two test images have other pixels: noise."""
    again = shutil.copytree(run, tmp_path / "run")
    (again / "dataset.json").unlink()  # it would refuse other images
    moved = shutil.copytree(photos, tmp_path / "mixed")
    shutil.rmtree(moved / ".cache", ignore_errors=True)
    index = divide_classes(read_folder(moved, 0, shared_classes=True), Shares(0.2, 0.2, 0))
    tested = np.flatnonzero(index.roles == "test")
    for row, other in ((tested[0], tested[-1]), (tested[-1], tested[0])):
        shutil.copy(Path(photos, Path(index.images[other]).relative_to(moved)), index.images[row])
    return again, moved


def test_the_page_of_errors_names_wrongly_identified_images(mixed, evaluated, tmp_path):
    """Two test images are swapped with those of another class."""
    folder, images = mixed
    words = (f"run={folder}", f"data.root={images}", "errors=true", "per_query=true")
    metrics = evaluated(*words, given=("run", "data.root", "errors", "per_query"))["metrics"]
    (written,) = (folder / "evaluations").iterdir()  # of other images than those of the run
    table = pd.read_csv(written / "per_query.csv")
    for column, name in (("mean", "class_mean"), ("neighbors", "neighbors")):
        is_right = table[f"class_by_{column}"] == table["label"]
        assert is_right.mean() == metrics[f"accuracy_{name}"]
    is_wrong = table["class_by_mean"] != table["label"]
    is_wrong |= table["class_by_neighbors"] != table["label"]
    assert is_wrong.iloc[[0, -1]].all()
    for name, label in (("reference", "class_by_neighbors"), ("right_reference", "label")):
        classes = [Path(path).parent.name for path in table[name]]
        assert classes == table[label].tolist()
    index = divide_classes(read_folder(images, 0, shared_classes=True), Shares(0.2, 0.2, 0))
    trained = {str(index.images[row]) for row in np.flatnonzero(index.roles == "train")}
    assert {*table["reference"], *table["right_reference"]} <= trained
    page = (written / "errors.html").read_text(encoding="utf-8")
    part = page[page.index('id="identified"') : page.index('id="worst"')]
    assert part.count('class="mistake"') == is_wrong.sum()
    assert "class mean. A query" in part
    for row in np.flatnonzero(is_wrong):
        assert table["query"][row] in part
        assert table["right_reference"][row] in part


def test_a_page_without_errors_of_identification_says_so(run, evaluated, tmp_path, monkeypatch):
    words = (f"run={run}", "errors=true", f"outputs={tmp_path}")
    nothing = np.zeros(8, bool)
    monkeypatch.setattr("dml.retrieval.identification.Identification.is_wrong", nothing)
    evaluated(*words, given=("run", "errors", "outputs"))
    (page,) = tmp_path.rglob("errors.html")
    assert "say the right class of every query" in page.read_text(encoding="utf-8")


class MethodWithoutLoss(torch.nn.Module):
    """As a method of a user may be: it computes its loss itself."""


def test_a_method_without_a_loss_is_evaluated(run, evaluated, monkeypatch):
    monkeypatch.setattr("dml.runs.build.Builder.method", lambda *sizes: MethodWithoutLoss())
    metrics = evaluated(f"run={run}", given=("outputs",))["metrics"]
    assert "accuracy_class_mean" in metrics
    assert "accuracy_loss" not in metrics


@pytest.mark.promise(
    "guides/own_images.md",
    "images of a closed set are added after the training: `dml evaluate` refuses to test them "
    "together with the earlier ones",
)
def test_a_moved_folder_has_the_same_division_and_other_images_are_refused(run, photos, tmp_path):
    moved = shutil.copytree(photos, tmp_path / "moved")
    shutil.rmtree(moved / ".cache", ignore_errors=True)
    words = [f"run={run}", f"data.root={moved}", f"outputs={tmp_path}"]
    assert commands.evaluate(words) == 0
    (path,) = tmp_path.rglob("evaluation.json")
    metrics = json.loads(path.read_text())["metrics"]
    assert metrics["map_at_r"] == summary_of(run)["metrics"]["map_at_r"]["mean"]
    shutil.copy(moved / "class_0/0.jpg", moved / "class_0/new.jpg")
    assert commands.evaluate(words) == 1


def test_other_images_are_refused_by_a_line(run, tmp_path, capsys):
    others = class_folders(tmp_path / "others", classes=4, per_class=9)
    assert commands.evaluate([f"run={run}", f"data.root={others}", f"outputs={tmp_path}"]) == 1
    shown = capsys.readouterr().err
    assert "data.root: others has 36 images, 4 fewer than in the training" in shown
    assert "columns path,label,split and test in each row: data.root=<file>.csv" in shown
    more = class_folders(tmp_path / "more", classes=4, per_class=11)
    assert commands.evaluate([f"run={run}", f"data.root={more}", f"outputs={tmp_path}"]) == 1
    assert "more has 44 images, 4 more than in the training" in capsys.readouterr().err
    same = class_folders(tmp_path / "same", classes=4, per_class=10)
    (same / "class_0" / "0.jpg").rename(same / "class_0" / "renamed.jpg")
    assert commands.evaluate([f"run={run}", f"data.root={same}", f"outputs={tmp_path}"]) == 1
    assert "same has 40 images, as in the training, but not the same" in capsys.readouterr().err


def test_a_list_of_test_images_alone_is_scored_with_a_note(run, photos, tmp_path, capsys):
    lines = ["path,label,split"]
    for label, item in np.ndindex(2, 3):
        lines.append(f"{photos}/class_{label}/{item}.jpg,class_{label},test")
    table = tmp_path / "list.csv"
    table.write_text("\n".join(lines))
    assert commands.evaluate([f"run={run}", f"data.root={table}", f"outputs={tmp_path}"]) == 0
    shown = capsys.readouterr().out
    assert "2 of 2 classes have names of classes that were trained on" in shown
    assert "accuracy" not in shown


def test_a_network_off_the_shelf_stands_apart(photos, tmp_path, evaluated):
    words = ("data=folder", f"data.root={photos}", "backbone=small_cnn", "transform.size=16")
    unseen = evaluated(*words, f"outputs={tmp_path}")
    seen = evaluated(*words, f"outputs={tmp_path}", "protocol=closed_set")
    assert seen["name"] == "small_cnn on photos, classes seen in training"
    assert set(seen["metrics"]) - set(unseen["metrics"]) == {*ACCURACIES}
    assert len([*tmp_path.rglob("evaluation.json")]) == 2


@pytest.mark.parametrize("name", ACCURACIES)
def test_accuracies_select_the_epoch_on_validation_images(tmp_path, name):
    words = (f"protocol.select_metric={name}", "evaluation.test_curve=true", "protocol.epochs=3")
    folder = Path(dml.train([*GLYPHS, *words, f"outputs={tmp_path}"])["folder"])
    history, summary = rows(folder), summary_of(folder)
    scores = [float(row[name]) for row in history]
    best = max(range(1, len(scores)), key=scores.__getitem__)
    assert summary["best_epoch"] == [float(history[best]["epoch"])]
    assert summary["selected_by"] == f"{name} on validation"
    assert float(history[best][f"test_{name}"]) == summary["metrics"][name]["mean"]


@pytest.mark.parametrize(
    "words",
    [
        ("method=ccp", "loss=c2"),
        ("method=metrix", "loss=contrastive"),
        ("method=xbm", "loss=contrastive"),
        ("method=untrained", "embedder.size=null", "embedder.head=none"),
        ("protocol.repeats=2", "data.label_noise=0.2"),
        ("data.classes=4", "data.images_per_class_at_most=2"),
    ],
    ids=" ".join,
)
def test_methods_and_options_have_accuracies(tmp_path, words):
    summary = dml.train([*GLYPHS, *words, f"outputs={tmp_path}"])
    for name in ACCURACIES:
        assert 0 <= summary["metrics"][name]["mean"] <= 1


def test_the_division_is_that_of_its_seed_and_not_of_the_run(tmp_path):
    prints = []
    for words in ((), ("seed=1",), ("protocol.split_seed=1",)):
        folder = dml.train([*GLYPHS, *words, "protocol.epochs=0", f"outputs={tmp_path}"])["folder"]
        prints.append(json.loads(Path(folder, "dataset.json").read_text())["fingerprint"])
    assert prints[0] == prints[1] != prints[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["protocol.test_share=0.6", "protocol.validation_share=0.4"], "protocol.test_share: 0.6"),
        (["protocol.test_share=0"], "protocol.test_share: 0 must be greater than 0"),
        (["protocol.validation_share=1"], "protocol.validation_share: 1 must be less than 1"),
        (["protocol.neighbors=0"], "protocol.neighbors: 0 must be greater"),
        (["protocol.splits=holdout"], "'holdout' tests unseen classes"),
        (["protocol=validation", "protocol.splits=closed_set"], "use protocol=closed_set"),
        (["protocol=validation", "+protocol.neighbors=3"], "protocol.neighbors: is an option of"),
        (["protocol=mlrc", "protocol.select_metric=accuracy_neighbors"], "of protocol=closed_set"),
        (["protocol.select_metric=accuracy"], "accuracy_class_mean | accuracy_neighbors"),
        (["protocol=validation", "+data.reader.shared_classes=true"], "data.reader.shared_classes"),
        (["protocol.selected_on=test"], "protocol.selected_on: splits 'closed_set'"),
    ],
)
def test_impossible_options_are_a_line_each(composed, words, message):
    with pytest.raises(ConfigError) as error:
        check(composed("protocol=closed_set", "data=glyphs", *words))
    (line,) = str(error.value).splitlines()
    assert message in line
