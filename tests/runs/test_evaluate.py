import errno
import json
import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dml
from dml.core.errors import ConfigError, UserError
from dml.data.readers import digits
from dml.retrieval.embeddings import SplitEmbeddings
from dml.runs.build import Builder
from tests.commands import evaluate
from tests.data.trees import class_folders


@pytest.mark.parametrize(
    ("precision", "dtype", "tolerance"), [("fp32", "float32", 1e-12), ("bf16", "float16", 0.005)]
)
def test_the_scores_of_a_run_are_reproduced(run_tiny, evaluated, precision, dtype, tolerance):
    summary, folder = run_tiny(f"precision={precision}", "protocol.epochs=1")
    result, path = evaluated(f"run={folder}", f"save={dtype}"), folder / "embeddings.npz"
    assert json.loads((folder / "evaluation.json").read_text()) == result
    with np.load(path) as file:
        assert (file["embeddings"].dtype, file["embeddings"].shape) == (dtype, (896, 8))
        assert len(file["paths"]) == 896
    stored = evaluated(f"embeddings={path}")["metrics"]
    assert stored == pytest.approx(result["metrics"], abs=tolerance)
    trained = summary["jobs"][0]["metrics"]
    assert trained["map_at_r"] < result["metrics"].pop("mean_average_precision") < 1
    assert result["metrics"] == pytest.approx(trained, abs=1e-12)


def test_the_classes_of_the_protocol_are_scored_and_not_the_published_ones(
    run_tiny, evaluated, monkeypatch
):
    """The published split has six classes for training, MLRC takes five; scores at its own K."""
    published = replace(digits.read_digits(), recall_at=(1, 10))
    roles = np.where(published.labels < 6, "train", "test")
    monkeypatch.setattr(digits, "read_digits", lambda: replace(published, roles=roles))
    words = ("protocol=mlrc", "loss=contrastive", "protocol.epochs=1", "protocol.steps_per_epoch=1")
    summary, folder = run_tiny(*words)
    scores = evaluated(f"run={folder}")["metrics"]
    assert scores["queries"] == np.count_nonzero(published.labels >= 5)
    first = summary["jobs"][0]["metrics"]
    recalls = {name for name in first if name.startswith("recall_at_")}
    assert recalls == {"recall_at_1", "recall_at_10"}
    assert {name: scores[name] for name in first} == pytest.approx(first, abs=1e-12)


def test_one_of_several_models_is_named(run_tiny, evaluated):
    _, folder = run_tiny("protocol.repeats=2", "protocol.epochs=1")
    assert "first of 2 models" in evaluated(f"run={folder}")["name"]


def test_data_are_read_before_weights(evaluated, tmp_path, monkeypatch):
    monkeypatch.setattr(Builder, "embedder", lambda builder: pytest.fail("weights were loaded"))
    with pytest.raises(UserError, match=r"data.root: .*absent"):
        evaluated("backbone=resnet50", "data=folder", f"data.root={tmp_path}/absent")


def test_an_off_the_shelf_network(evaluated, tmp_path):
    result = evaluated("backbone=small_cnn", "backbone.width=4", "data=digits")
    assert result["name"] == "small_cnn on digits"
    assert result["embedding_size"] == 16
    assert result["stand_in"] is True
    same = evaluated("backbone=small_cnn", "backbone.width=4", "data=digits", "overwrite=true")
    assert same["metrics"] == result["metrics"]  # the random weights are those of the seed
    evaluated("backbone=small_cnn", "backbone.width=8", "data=digits")
    assert len([*tmp_path.glob("evaluations/digits-small_cnn-*/evaluation.json")]) == 2


@pytest.fixture
def cats_and_dogs(tmp_path):
    """Two folders of images with the same name."""
    folders = []
    for number, name in enumerate(("cats", "dogs")):
        folder = class_folders(tmp_path / name / "images", classes=4, per_class=4)
        for path in sorted(folder.rglob("*.jpg"))[: 4 * number]:
            path.write_bytes(max(folder.rglob("*.jpg")).read_bytes())
        folders.append(folder)
    return folders


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.promise(
    "guides/evaluate_embeddings.md",
    "scores, pictures and pages of other images or embeddings are there, also of folders or "
    "files with the same name: they stay, and a line says so; `overwrite=true` replaces them",
)
def test_scores_of_embeddings_in_another_folder_stay(evaluated, tmp_path):
    """All runs store theirs as test_embeddings.npz."""
    files = []
    for name, labels in {"a": [0, 0, 1, 1], "b": [0, 1, 0, 1]}.items():
        files.append(tmp_path / name / "test_embeddings.npz")
        files[-1].parent.mkdir()
        np.savez(files[-1], embeddings=np.arange(4.0)[:, None], labels=labels)
    first, second = (f"embeddings={file}" for file in files)
    words = ("errors=true", "per_query=true", "evaluation.measures=[fnmr_at_fmr_0.01]")
    scores = evaluated(first, *words, given=["outputs", "evaluation.measures"])
    written = contents(tmp_path / "evaluations")
    assert len(written) == 4
    with pytest.raises(UserError, match=r"evaluation\.json exists, and this command did not"):
        evaluated(second, given=["outputs"])
    assert contents(tmp_path / "evaluations") == written
    assert evaluated(first, given=["outputs"])["source"] == scores["source"]
    others = evaluated(second, "overwrite=true", given=["outputs"])
    assert others["metrics"] != scores["metrics"]
    for word in (first, second):  # beside the files, where names tell them apart
        assert "source" not in evaluated(word)


def test_networks_on_folders_of_the_same_name(cats_and_dogs, evaluated, tmp_path):
    words = ("backbone=small_cnn", "backbone.width=4", "data=folder", "transform.size=16")
    for folder in cats_and_dogs:
        result = evaluated(*words, f"data.root={folder}")
        assert result["source"].startswith("images-")
    paths = [*tmp_path.rglob("evaluation.json")]
    assert len(paths) == 2
    for path in paths:
        assert str(tmp_path) not in path.read_text(), "paths of this machine"


def test_scores_of_a_run_on_other_images(cats_and_dogs, run_tiny, evaluated, tmp_path):
    cats, dogs = (f"data.root={folder}" for folder in cats_and_dogs)
    small = ("backbone=small_cnn", "transform.size=16", "data.batch_size=4", "protocol.epochs=0")
    _, folder = run_tiny("data=folder", cats, *small)
    run, path = f"run={folder}", folder / "evaluation.json"
    of_cats = evaluated(run)
    assert "source" not in of_cats
    of_dogs = evaluated(run, dogs, "errors=true", given=["data.root"])
    assert of_dogs["source"].startswith("images-")
    assert of_dogs["metrics"] != of_cats["metrics"]
    assert json.loads(path.read_text()) == of_cats
    (other,) = (folder / "evaluations").iterdir()
    assert {file.name for file in other.iterdir()} == {"evaluation.json", "errors.html"}
    assert str(tmp_path) not in (other / "evaluation.json").read_text(), "paths of this machine"
    for given in (["data.root"], ["data.root", "outputs"]):
        assert evaluated(run, dogs, given=given) == of_dogs
    assert evaluated(run, given=["outputs"]) == of_cats
    moved = cats_and_dogs[0].rename(tmp_path / "moved")
    assert evaluated(run, f"data.root={moved}", given=["data.root"]) == of_cats


def test_scores_of_an_exported_network(cats_and_dogs, run_tiny, evaluated, tmp_path):
    """It does not know on which images it was trained."""
    cats, dogs = (f"data.root={folder}" for folder in cats_and_dogs)
    small = ("backbone=small_cnn", "transform.size=16", "data.batch_size=4", "protocol.epochs=0")
    folder = dml.export(run_tiny("data=folder", cats, *small)[1], tmp_path / "net")
    run, path = f"run={folder}", folder / "evaluation.json"
    of_cats = evaluated(run, cats, given=["data.root"])
    assert json.loads(path.read_text()) == of_cats
    with pytest.raises(UserError, match=r"evaluation\.json exists, and this command did not"):
        evaluated(run, dogs, given=["data.root"])
    assert json.loads(path.read_text()) == of_cats
    of_dogs = evaluated(run, dogs, given=["data.root", "outputs"])
    assert of_dogs["metrics"] != of_cats["metrics"]
    assert evaluated(run, dogs, "overwrite=true", given=["data.root"]) == of_dogs
    another = run_tiny("data=folder", dogs, *small)[1]
    assert dml.export(another, folder) == folder, "scores are no files of somebody else"


def test_query_and_gallery(evaluated, tmp_path):
    np.savez(
        tmp_path / "x.npz",
        embeddings=np.array([[0.0], [10.0]]),
        labels=np.array([0, 1]),
        gallery_embeddings=np.array([[0.1], [0.2], [9.0]]),
        gallery_labels=np.array([0, 1, 0]),
    )
    result = evaluated(f"embeddings={tmp_path}/x.npz", "recall_at=[1,2]")
    # the first query finds one of its two among the first two, the second query's first is wrong
    assert result["metrics"]["precision_at_1"] == 0.5
    assert result["metrics"]["map_at_r"] == 0.25
    assert (tmp_path / "x.evaluation.json").exists()


@pytest.mark.promise(
    "guides/evaluate_embeddings.md",
    "a file has rows of the splits `query` and `gallery`, as of `dml embed … data=inshop`: they "
    "are scored together, and a note says so",
)
@pytest.mark.parametrize("splits", [["query", "gallery"], ["query", "query"], ["test", "test"]])
def test_splits_of_a_file_get_a_note(evaluated, tmp_path, capsys, splits):
    points, labels = np.arange(6.0)[:, None], np.array([0, 1, 1, 0, 0, 1])
    np.savez(tmp_path / "x.npz", embeddings=points, labels=labels, splits=np.array(splits * 3))
    assert evaluated(f"embeddings={tmp_path}/x.npz")["metrics"]["queries"] == 6
    is_noted = "3 of the split query and the 3 of the split gallery" in capsys.readouterr().out
    assert is_noted == (len(set(splits)) > 1)


@pytest.mark.promise(
    "guides/evaluate_embeddings.md",
    "queries are in the gallery: `self_index` leaves each out of its own neighbors; without it, a "
    "note says so",
)
def test_queries_that_are_in_the_gallery_get_a_note(evaluated, tmp_path, capsys):
    points, labels = np.arange(6.0)[:, None], np.array([0, 1, 1, 0, 0, 1])
    arrays = {"embeddings": points, "labels": labels, "gallery_embeddings": points}
    arrays["gallery_labels"] = labels
    np.savez(tmp_path / "x.npz", **arrays)
    assert evaluated(f"embeddings={tmp_path}/x.npz")["metrics"]["precision_at_1"] == 1
    assert "add self_index" in capsys.readouterr().out
    np.savez(tmp_path / "x.npz", **arrays, self_index=np.arange(6))
    assert evaluated(f"embeddings={tmp_path}/x.npz")["metrics"]["precision_at_1"] == 1 / 3
    assert "self_index" not in capsys.readouterr().out


def test_the_command(capfd, tmp_path):
    assert evaluate(["run=nowhere", f"outputs={tmp_path}"]) == 2
    assert capfd.readouterr().err.startswith("error: run: nowhere is not a run folder")
    assert evaluate(["save=float8", "embedings=x"]) == 2
    err = capfd.readouterr().err
    assert "did you mean 'embeddings'?" in err
    assert "did you mean 'float32'?" in err


def test_the_row_of_a_missing_number_is_named_with_its_file(evaluated, tmp_path):
    rows = np.eye(6, 4)
    rows[2, 1] = np.nan
    path = tmp_path / "rows.npz"
    np.savez(path, embeddings=rows, labels=np.arange(6) % 2)
    expected = f"embeddings: {path}: embeddings: 1 of 24 values are NaN or infinite, first in row 2"
    with pytest.raises(UserError, match=re.escape(expected)):
        evaluated(f"embeddings={path}")


def test_equal_embeddings_get_a_note(evaluated, tmp_path, capsys):
    for name, rows in (("equal", np.ones((6, 4))), ("different", np.eye(6, 4))):
        np.savez(tmp_path / f"{name}.npz", embeddings=rows, labels=np.arange(6) % 2)
        evaluated(f"embeddings={tmp_path / name}.npz")
        assert ("all embeddings are equal" in capsys.readouterr().out) == (name == "equal")


def test_lengths_that_differ_get_a_note(evaluated, tmp_path, capsys):
    """Else scores by Euclidean distance are taken for those by cosine similarity."""
    unit = np.random.default_rng(0).normal(size=(12, 4))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    labels = np.arange(12) % 3
    one_is_long = unit.copy()
    one_is_long[5] *= 2
    gallery = {"gallery_labels": labels, "gallery_embeddings": 3 * unit}
    files = {
        "unit": ({"embeddings": unit}, ""),
        "half": ({"embeddings": unit.astype(np.float16)}, ""),
        "seven": ({"embeddings": 7 * unit}, ""),
        "long": ({"embeddings": one_is_long}, "embeddings are 1 to 2, and"),
        "gallery": (
            {"embeddings": unit, **gallery},
            "embeddings are 1 to 3, and",
        ),
        "zero": (
            {"embeddings": np.vstack([unit[:11], np.zeros(4)])},
            "embeddings are 0 to 1, and",
        ),
    }
    for name, (arrays, expected) in files.items():
        np.savez(tmp_path / f"{name}.npz", labels=labels, **arrays)
        evaluated(f"embeddings={tmp_path / name}.npz")
        output = " ".join(capsys.readouterr().out.split())
        if expected:
            assert expected in output
        else:
            assert "lengths of embeddings" not in output


@pytest.fixture
def read_only(monkeypatch):
    """Refuses to make files below a folder, as a share does that is mounted read-only."""

    def refuse(folder):
        make = tempfile.TemporaryFile

        def refused(*more, dir=None, **options):
            if Path(dir).resolve().is_relative_to(folder.resolve()):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            return make(*more, dir=dir, **options)

        monkeypatch.setattr(tempfile, "TemporaryFile", refused)

    return refuse


@pytest.mark.parametrize("kind", ["run", "embeddings"])
@pytest.mark.promise(
    "guides/evaluate_embeddings.md",
    "the folder of a run or of embeddings cannot be written to: a line says so before the work, "
    "and `outputs=` puts the scores elsewhere",
)
def test_scores_go_elsewhere(evaluated, run_tiny, read_only, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    share = tmp_path / "share"
    if kind == "run":
        run_tiny("protocol.epochs=1")[1].rename(share)
        word = "run=share"
    else:
        share.mkdir()
        np.savez(share / "x.npz", embeddings=np.eye(6, 4), labels=np.arange(6) % 2)
        word = "embeddings=share/x.npz"
    expected = evaluated(word)
    before = sorted(share.rglob("*"))
    read_only(share)
    with monkeypatch.context() as patch:
        patch.setattr(SplitEmbeddings, "score", lambda *more: pytest.fail("too late"))
        with pytest.raises(UserError, match=r"share cannot be written to .* outputs=<folder>"):
            evaluated(word)
    moved = evaluated(word, "outputs=mine", given=("outputs",))
    assert moved["metrics"] == expected["metrics"]
    assert sorted(share.rglob("*")) == before
    assert len([*Path("mine/evaluations").rglob("*evaluation.json")]) == 1


def test_measures_of_a_run_and_of_its_embeddings(run_tiny, evaluated, tmp_path):
    """Validation classes choose the threshold of a run; a file has none but its rows."""
    measures = "evaluation.measures=[fnmr_at_fmr_0.01,uniformity]"
    summary, folder = run_tiny("protocol=holdout", measures)
    trained = {name: value["mean"] for name, value in summary["metrics"].items()}
    words = (measures, f"run={folder}", "save=float32")
    of_run = evaluated(*words, given=("run", "save", "evaluation.measures"))
    names = [name for name in trained if name.startswith("fnmr")]
    assert len(names) == 4
    for name in (*names, "uniformity"):
        assert of_run["metrics"][name] == pytest.approx(trained[name], rel=1e-4, abs=1e-6)
    assert (folder / "match_errors.png").exists()
    stored = folder / "embeddings.npz"
    of_file = evaluated(
        measures, f"embeddings={stored}", given=("embeddings", "evaluation.measures")
    )["metrics"]
    assert of_file["fnmr_at_fmr_0.01"] == pytest.approx(trained["fnmr_at_fmr_0.01"])
    assert "fnmr_at_fmr_0.01_test_fmr" not in of_file
    assert (folder / "embeddings.match_errors.png").exists()


def test_measures_of_the_run_are_the_default(run_tiny, evaluated, capsys):
    """Those that need the training are left out; `[]` asks for none; other images may have none."""
    names = "fnmr_at_fmr_0.01,uniformity,utilization"
    summary, folder = run_tiny("protocol=holdout", f"evaluation.measures=[{names}]")
    metrics = evaluated(f"run={folder}", given=("run",))["metrics"]
    for name in ("fnmr_at_fmr_0.01", "fnmr_at_fmr_0.01_threshold", "uniformity"):
        expected = summary["metrics"][name]["mean"]
        assert metrics[name] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert "utilization" not in metrics
    assert "threshold   FNMR@FMR 0.01" in capsys.readouterr().out
    words = (f"run={folder}", "evaluation.measures=[]")
    metrics = evaluated(*words, given=("run", "evaluation.measures"))["metrics"]
    assert not {"fnmr_at_fmr_0.01", "uniformity"} & metrics.keys()


def test_measures_of_a_run_that_do_not_fit_other_images_are_left_out(
    run_tiny, evaluated, monkeypatch, capsys
):
    _, folder = run_tiny("evaluation.measures=[uniformity]")

    def fail(*more):
        raise ValueError("labels: there must be pairs")

    monkeypatch.setattr("dml.runs.evaluation.measures.measure_embeddings", fail)
    assert "map_at_r" in evaluated(f"run={folder}", given=("run",))["metrics"]
    shown = " ".join(capsys.readouterr().out.split())
    assert "there must be pairs; the measures of the run are left out" in shown
    with pytest.raises(UserError, match="there must be pairs"):
        evaluated(
            f"run={folder}",
            "evaluation.measures=[uniformity]",
            given=("run", "evaluation.measures"),
        )


def test_smaller_vectors_of_the_run_are_the_default(run_tiny, evaluated):
    _, folder = run_tiny("evaluation.compress=[int8]")
    result = evaluated(f"run={folder}", given=("run",))
    assert "int8" in str(result["compression"])
    words = (f"run={folder}", "evaluation.compress=[]")
    assert "compression" not in evaluated(*words, given=("run", "evaluation.compress"))


def test_measures_that_need_a_training(evaluated, tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=np.eye(4), labels=[0, 0, 1, 1])
    words = (f"embeddings={tmp_path / 'x.npz'}", "evaluation.measures=[utilization]")
    with pytest.raises(ConfigError, match=r"evaluation\.measures: utilization needs the training"):
        evaluated(*words, given=("embeddings", "evaluation.measures"))


@pytest.mark.parametrize("gallery", [None, 5])
def test_recalls_as_large_as_the_gallery_have_a_note(evaluated, tmp_path, capsys, gallery):
    arrays = {"embeddings": np.eye(6), "labels": [0, 0, 0, 1, 1, 1]}
    if gallery:
        arrays |= {"gallery_embeddings": np.eye(5, 6), "gallery_labels": [1, 1, 0, 0, 0]}
    np.savez(tmp_path / "x.npz", **arrays)
    words = (f"embeddings={tmp_path / 'x.npz'}", "recall_at=[1,4,5,90]")
    metrics = evaluated(*words, given=("embeddings", "recall_at"))["metrics"]
    assert metrics["recall_at_5"] == metrics["recall_at_90"] == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "can find 5 images, so that Recall@K is 100 by definition for K = 5, 90" in shown
    evaluated(words[0], "recall_at=[1,4]", given=("embeddings", "recall_at"))
    assert "by definition" not in capsys.readouterr().out


def test_measures_of_one_class(evaluated, tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=np.eye(4), labels=[0, 0, 0, 0])
    words = (f"embeddings={tmp_path / 'x.npz'}", "evaluation.measures=[fnmr_at_fmr_0.01]")
    with pytest.raises(UserError, match="pairs of the same and of different classes"):
        evaluated(*words, given=("embeddings", "evaluation.measures"))
