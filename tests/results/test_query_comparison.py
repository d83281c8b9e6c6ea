"""`dml runs compare` query by query: tiny runs, files of embeddings, and what is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dml.core.errors import UserError
from dml.runs import kept_embeddings
from dml.runs.folder.run_folder import RunFolder
from dml.runs.model import Model
from tests.commands import embed, runs
from tests.conftest import TINY, compose_config, run_config, without_pictures
from tests.runs.small_runs import SMALL

KEPT = "checkpoints/repeat0-fold0/test_embeddings.npz"
SHORT = ("protocol.epochs=1", "protocol.steps_per_epoch=2")
MADE = {
    "ms": (*TINY, *SHORT, "loss=ms"),
    "triplet": (*TINY, *SHORT, "loss=triplet", "evaluation.keep_embeddings=true"),
    "all": (*TINY, *SHORT, "protocol=all_classes"),
    "glyphs": (*SMALL, "protocol=traditional", "loss=contrastive"),
    "mlrc": (*SMALL, "loss=contrastive"),
    "mlrc2": (*SMALL, "loss=contrastive", "seed=1"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Finished runs, by name, which each test copies."""
    outputs = tmp_path_factory.mktemp("made") / "outputs"
    folders = {}
    with without_pictures():
        for name, words in MADE.items():
            config = compose_config(f"outputs={outputs}", f"name={name}", *words)
            folders[name] = run_config(config)[1].relative_to(outputs)
    return outputs, folders


@pytest.fixture
def folders(made, tmp_path, monkeypatch):
    """The folder of each run, below outputs/ of the current folder."""
    outputs, names = made
    shutil.copytree(outputs, tmp_path / "outputs")
    monkeypatch.chdir(tmp_path)
    return {name: tmp_path / "outputs" / folder for name, folder in names.items()}


@pytest.fixture
def compared(folders, capsys):
    """Compares two runs or files; returns the lines, or why queries are not compared."""

    def compare(*words, status=0):
        assert runs(["compare", *map(str, words)]) == status
        shown = capsys.readouterr()
        if status:
            return shown.err.splitlines()
        assert not shown.err
        lines = shown.out.splitlines()
        return lines[-1:] if "not compared" in lines[-1] else lines

    return compare


def cells(lines, label):
    """The last row of a metric: after the table of the two runs comes that of the queries."""
    return [line.split() for line in lines if line.startswith(label)][-1]


def test_scores_are_those_of_the_runs_and_embeddings_are_computed_once(
    compared, folders, monkeypatch
):
    kept = folders["ms"] / KEPT
    assert not kept.exists()
    lines = compared("ms", "triplet")
    assert kept.exists()
    scores = {}
    for name in ("ms", "triplet"):
        summary = json.loads(RunFolder(folders[name]).summary.read_text())
        scores[name] = 100 * summary["metrics"]["map_at_r"]["mean"]
    row = cells(lines, "MAP@R")
    assert row[1:3] == [f"{scores['ms']:.2f}", f"{scores['triplet']:.2f}"]
    assert float(row[3]) == pytest.approx(scores["triplet"] - scores["ms"], abs=0.006)
    assert sum(map(int, row[-3:])) == 896
    assert any("fewer than 10 classes: the interval is unreliable" in line for line in lines)
    assert any("another seed may differ more" in line for line in lines)
    picture = next(line.split()[1] for line in lines if line.endswith("-queries.png"))
    assert Path(picture).stat().st_size > 10_000
    monkeypatch.setattr(Model, "embed", lambda *more: pytest.fail("embedded again"))
    assert cells(compared("triplet", "ms"), "MAP@R")[3] == _negated(row[3])


def _negated(text):
    return text.translate(str.maketrans("+-", "-+"))


def test_what_is_kept_is_what_the_option_keeps(compared, folders):
    by_option = folders["triplet"] / KEPT
    expected = dict(np.load(by_option))
    by_option.unlink()
    compared("ms", "triplet")
    stored = dict(np.load(by_option))
    assert stored.keys() == expected.keys()
    for name, array in expected.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(stored[name], array, atol=1e-6)
        else:
            np.testing.assert_array_equal(stored[name], array)


def test_a_lost_file_of_a_fold_is_computed_by_its_network(folders):
    file = folders["mlrc"] / "checkpoints/repeat0-fold2/test_embeddings.npz"
    expected = np.load(file)["embeddings"]
    file.unlink()
    assert file in kept_embeddings.keep_test_embeddings(_stored(folders["mlrc"]))
    np.testing.assert_allclose(np.load(file)["embeddings"], expected, atol=1e-6)


def test_asked_metrics_and_a_run_beside_itself(compared):
    lines = compared("ms", "ms", "--metrics", "recall_at_4,mrr_at_r")
    for label in ("Recall@1", "R-precision", "MAP@R", "Recall@4", "MRR@R"):
        row = cells(lines, label)
        assert row[3:] == ["+0.00", "+0.00", "to", "+0.00", "0", "0", "896"]
    assert "no picture: no query differs" in lines


def test_models_of_folds_are_compared_as_means(compared, folders):
    lines = compared("mlrc", "mlrc2")
    assert "scores of a query: means of 4 and 4 models" in lines
    summary = json.loads(RunFolder(folders["mlrc"]).summary.read_text())
    mean = 100 * summary["metrics"]["map_at_r"]["mean"]
    assert cells(lines, "MAP@R")[1] == f"{mean:.2f}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("ms", "glyphs"), "are of other images, which have no paths"),
        (("ms", "all"), "has no test images: it was trained on all classes"),
        (("glyphs", "mlrc"), "1 model a repeat, "),
    ],
)
def test_runs_that_cannot_be_compared_keep_the_rest_of_the_table(compared, words, message):
    lines = compared(*words)
    assert len(lines) == 1
    assert lines[0].startswith("queries     not compared: ")
    assert message in lines[0]
    error = compared(*words, "--metrics", "recall_at_2", status=1)
    assert len(error) == 1
    assert message in error[0]


def test_unfinished_runs_and_lost_weights(compared, folders):
    (folders["ms"] / "checkpoints/repeat0-fold0/best.pt").unlink()
    assert "best.pt; train it again" in compared("ms", "triplet")[0]
    RunFolder(folders["triplet"]).summary.unlink()
    assert "is stopped, not finished" in compared("triplet", "ms")[0]


def test_both_runs_are_checked_before_images_are_embedded(compared, folders):
    RunFolder(folders["triplet"]).summary.unlink()
    assert "is stopped, not finished" in compared("ms", "triplet")[0]
    assert not (folders["ms"] / KEPT).exists()


def test_other_images_than_those_of_the_run(compared, folders):
    dataset = RunFolder(folders["ms"]).dataset
    stored = json.loads(dataset.read_text())
    dataset.write_text(json.dumps(stored | {"fingerprint": "0"}))
    (line,) = compared("ms", "triplet")
    assert "images, as in the training, but not the same; put them back" in line
    shutil.copy(folders["triplet"] / KEPT, folders["ms"] / KEPT)
    assert "are of other images, which have no paths" in compared("ms", "triplet")[0]


def test_a_folder_that_cannot_be_written_to(compared, folders, monkeypatch):
    def refuse(path, option, remedy):
        raise UserError(f"{option}: {path} cannot be written to (Permission denied); {remedy}")

    monkeypatch.setattr(kept_embeddings, "check_writable", refuse)
    assert "save=float32 outputs=<folder> stores them elsewhere" in compared("ms", "triplet")[0]


def test_an_interrupted_embedding_leaves_no_file(folders, monkeypatch):
    def stop(*more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Model, "embed", stop)
        with pytest.raises(KeyboardInterrupt):
            kept_embeddings.keep_test_embeddings(_stored(folders["ms"]))
    assert not (folders["ms"] / KEPT).exists()
    assert kept_embeddings.keep_test_embeddings(_stored(folders["ms"])) == [folders["ms"] / KEPT]


def _stored(folder):
    from dml.runs.folder.stored_run import read_run

    return read_run(folder)


def test_queries_can_be_left_out(folders, capsys):
    assert runs(["compare", "ms", "triplet", "--no-queries"]) == 0
    assert "tied" not in capsys.readouterr().out
    assert not (folders["ms"] / KEPT).exists()


@pytest.mark.promise(
    "runs.md", "the runs have other test images or classes: a line says so below the scores"
)
def test_files_of_embeddings_and_a_run(compared, folders, tmp_path):
    from PIL import Image

    photos = tmp_path / "photos"
    for number in range(12):
        folder = photos / f"class{number // 3}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((8, 8), 50 * number + 10).save(folder / f"{number}.png")
    shutil.copytree(photos, tmp_path / "moved")
    assert embed([str(folders["ms"]), "photos", "a.npz"]) == 0
    assert embed([str(folders["triplet"]), "moved", "b.parquet"]) == 0
    lines = compared("a.npz", "b.parquet")
    assert sum(map(int, cells(lines, "MAP@R")[-3:])) == 12
    assert lines[-1] == "queries     outputs/comparisons/a-b-queries.png"
    shutil.rmtree("photos")
    assert compared("a.npz", "b.parquet")[-1].startswith("no picture: ")
    beside = compared("b.parquet", folders["ms"], status=1)
    assert "not of the same test images" in beside[0]
    shutil.copy(folders["triplet"] / KEPT, "c.npz")
    assert cells(compared("ms", "c.npz"), "MAP@R")[-1].isdecimal()


def test_lengths_that_differ_get_a_note(compared, folders):
    """Of each file; a run was trained with its distance."""
    unit = np.random.default_rng(0).normal(size=(30, 4))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    longer = unit * np.linspace(1, 2, 30)[:, None]
    for name, points in {"unit": unit, "longer": longer}.items():
        np.savez(f"{name}.npz", embeddings=points, labels=np.arange(30) % 3)
    for words in ("unit.npz", "longer.npz"), ("longer.npz", "unit.npz"), ("longer.npz",) * 2:
        text = " ".join(compared(*words))
        assert text.count("lengths of embeddings") == 1
        assert "longer.npz: lengths of embeddings are 1 to 2, and distances" in text
    assert "lengths of embeddings" not in " ".join(compared("unit.npz", "unit.npz"))


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("a.npz", "gone.npz"), 1, "gone.npz does not exist"),
        (("a.npz", "a.npz", "--no-queries"), 2, "--no-queries: files of embeddings"),
        (("ms", "ms", "--metrics", "nmi"), 1, "'nmi' is no score of each query"),
        (("ms", "ms", "--metrics", "nmi", "--no-queries"), 2, "--metrics: has no effect"),
        (("ms",), 2, "takes two or more runs, by id, or two files"),
        (("a.npz", "none"), 1, "'none' is neither the id, name or folder"),
        (("a.npz", "b.txt"), 1, "'b.txt' is neither"),
        (("a.npz", "damaged.npz"), 1, "damaged.npz cannot be read"),
        (("a.npz", "folder.npz"), 1, "'folder.npz' is neither"),
    ],
)
def test_wrong_words_are_one_line(compared, words, status, message):
    np.savez("a.npz", embeddings=np.eye(4), labels=[0, 0, 1, 1])
    Path("damaged.npz").write_bytes(Path("a.npz").read_bytes()[:100])
    Path("folder.npz").mkdir()
    lines = compared(*words, status=status)
    assert len(lines) == 1
    assert message in lines[0]


@pytest.mark.parametrize("action", ["list", "best", "clean", "rm"])
def test_options_of_compare_are_refused_elsewhere(folders, capsys, action):
    assert runs([action, "--no-queries", *(["ms"] if action == "rm" else [])]) == 2
    assert "--no-queries: is an option of compare" in capsys.readouterr().err
