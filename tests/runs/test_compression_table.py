"""Smaller vectors of runs and files: what fits them, what is scored, and what is refused early."""

import json

import numpy as np
import pytest
import torch

import dml
from dml.core.errors import ConfigError, UserError
from dml.data.image_index import ImageIndex, Subset
from dml.retrieval.compression import Compression
from dml.retrieval.embedding_file import open_embeddings
from dml.retrieval.embeddings import SplitEmbeddings
from dml.runs import compressed_rows, compression_table
from dml.runs.compression_table import fit_on_training
from dml.runs.model import Model
from tests.commands import embed as embed_command
from tests.commands import evaluate as evaluate_command

FORMS = "evaluation.compress=[pca4,truncate4,float16,int8,binary,pca4+int8]"


def means(table, form, metric="map_at_r"):
    rows = {row["form"]: row["metrics"] for row in table["rows"]}
    return rows[form][metric]["mean"]


def test_a_run_and_its_evaluation_fit_on_training_images(run_tiny, evaluated, capsys):
    summary, folder = run_tiny("protocol.epochs=1", FORMS)
    trained = summary["jobs"][0]["compression"]
    result = evaluated(f"run={folder}", FORMS, given=["run", "evaluation.compress"])
    assert result["compression"] == trained
    assert json.loads((folder / "evaluation.json").read_text())["compression"] == trained
    assert trained["fitted_on"] == "901 training images"
    assert not trained["fitted_on_scored"]
    for metric in ("map_at_r", "recall_at_1", "recall_at_8"):
        assert means(trained, "float32", metric) == pytest.approx(
            summary["metrics"][metric]["mean"]
        )
    printed = capsys.readouterr().out
    assert "pca4+int8" in printed
    assert "fitted on 901 training images" in printed

    # The same by a file of all images, whose training rows fit and are not scored.
    dml.embed(folder, "data=digits", folder / "all.npz")
    given = ["embeddings", "evaluation.compress"]
    table = evaluated(f"embeddings={folder}/all.npz", FORMS, given=given)["compression"]
    assert table["fitted_on"] == "901 rows of the split train"
    assert table["queries"] == trained["queries"]
    for row in trained["rows"]:
        expected = row["metrics"]["map_at_r"]["mean"]
        assert means(table, row["form"]) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("form", ["int8", "binary", "pca3", "truncate5+int8"])
def test_codes_in_parts_are_those_of_each_row(monkeypatch, form):
    monkeypatch.setattr(compressed_rows, "CHUNK", 7)
    points = np.random.default_rng(0).normal(size=(17, 6)).astype(np.float32)
    splits = np.where(np.arange(17) % 3 > 0, "train", "test")
    codes, made = compressed_rows.compress_rows(form, points, splits)
    expected = Compression.fit(form, points[splits == "train"], "").encode(points)
    np.testing.assert_array_equal(codes, expected)
    for row in range(17):
        np.testing.assert_array_equal(codes[row], made.encode(points[row : row + 1])[0])


def test_files_without_training_rows_fit_on_themselves(evaluated, tmp_path, capsys):
    points = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    labels = np.arange(60) % 6
    path, given = tmp_path / "x.npz", ["embeddings", "evaluation.compress"]
    for arrays in ({}, {"splits": np.full(60, "train")}, {"splits": np.full(60, "test")}):
        np.savez(path, embeddings=points, labels=labels, **arrays)
        result = evaluated(f"embeddings={path}", "evaluation.compress=[int8]", given=given)
        table = result["compression"]
        assert table["fitted_on_scored"]
        assert table["fitted_on"].startswith("the 60 scored images themselves")
        assert table["queries"] == 60
        assert "which favors project, pca and int8" in " ".join(capsys.readouterr().out.split())
        assert means(table, "float32") == pytest.approx(result["metrics"]["map_at_r"])


def test_of_many_training_images_some_of_each_class_fit(monkeypatch):
    """Published lists are ordered by classes: the first images would be of the first classes."""
    monkeypatch.setattr(compression_table, "FITTED_ROWS", 20)
    labels = np.repeat(np.arange(10), 7)
    images, roles = np.zeros((70, 1, 1, 3), np.uint8), np.full(70, "train")
    index = ImageIndex("made", images, labels, roles)
    embedded = []

    def embed(split):
        embedded.extend(split.query.labels)
        points = torch.as_tensor(split.query.rows, dtype=torch.float32)[:, None]
        return SplitEmbeddings(points, torch.as_tensor(split.query.labels))

    fitting = fit_on_training(embed, Subset(index, np.arange(70)), None)
    assert len(fitting.points) == len(embedded) == 20
    assert set(embedded) == set(range(10))
    assert (fitting.points.min(), fitting.points.max()) == (0, 69)


def test_whole_numbers_and_half_precision(evaluated, tmp_path):
    numbers = np.random.default_rng(0).integers(-50, 50, size=(60, 6))
    path, given = tmp_path / "x.npz", ["embeddings", "evaluation.compress"]
    for dtype in ("int16", "float16", "float64"):
        np.savez(path, embeddings=numbers.astype(dtype), labels=np.arange(60) % 6)
        result = evaluated(f"embeddings={path}", "evaluation.compress=[binary]", given=given)
        first, binary = result["compression"]["rows"]
        assert (first["bytes"], binary["bytes"]) == ({"float64": 48}.get(dtype, 24), 1)
        expected = pytest.approx(result["metrics"]["map_at_r"])
        assert first["metrics"]["map_at_r"]["mean"] == expected


def test_the_table_of_several_models_is_that_of_the_first(run_tiny, capsys):
    words = ("protocol.repeats=2", "protocol.epochs=1", "evaluation.compress=[int8]")
    summary, _ = run_tiny(*words)
    assert "the first of 2 models" in capsys.readouterr().out
    first, second = (job["compression"] for job in summary["jobs"])
    assert first["rows"][1]["metrics"] != second["rows"][1]["metrics"]
    for job in summary["jobs"]:
        expected = pytest.approx(job["metrics"]["map_at_r"])
        assert means(job["compression"], "float32") == expected


def test_a_query_and_gallery_file_fits_on_the_gallery(evaluated, tmp_path):
    random, path = np.random.default_rng(0), tmp_path / "x.npz"
    np.savez(
        path,
        embeddings=random.normal(size=(20, 6)),
        labels=np.arange(20) % 5,
        gallery_embeddings=random.normal(size=(40, 6)),
        gallery_labels=np.arange(40) % 5,
    )
    given = ["embeddings", "evaluation.compress"]
    result = evaluated(f"embeddings={path}", "evaluation.compress=[int8]", given=given)
    table = result["compression"]
    assert table["fitted_on"].startswith("the 40 scored images")
    assert [row["form"] for row in table["rows"]] == ["float64", "int8"]
    assert means(table, "float64") == pytest.approx(result["metrics"]["map_at_r"])


@pytest.mark.promise(
    "guides/smaller_vectors.md",
    "a form does not fit: `pca512` of embeddings with 128 dimensions, or with too few images, is "
    "refused in one line before the training or the embedding begins",
)
def test_too_many_dimensions_are_refused_before_the_work(
    run_tiny, evaluated, tmp_path, monkeypatch
):
    with pytest.raises(UserError, match=r"^evaluation\.compress: pca9: embeddings have 8 dimens"):
        run_tiny("protocol.epochs=1", "evaluation.compress=[int8,pca9]")
    assert not (tmp_path / "outputs").exists()
    _, folder = run_tiny("protocol.epochs=1")
    monkeypatch.setattr(Model, "embed", lambda *_: pytest.fail("images were embedded"))
    given = ["run", "evaluation.compress"]
    with pytest.raises(UserError, match="truncate9: embeddings have 8 dimensions"):
        evaluated(f"run={folder}", "evaluation.compress=[truncate9]", given=given)
    monkeypatch.undo()
    monkeypatch.setattr("dml.runs.embed_images.new_file.embed_rows", None)
    images = np.zeros((4, 8, 8, 3), np.uint8)
    with pytest.raises(UserError, match=r"^compress: pca4 is fitted on more than 4 images"):
        dml.embed(folder, images, compress="pca4")
    with pytest.raises(UserError, match=r"^compress: pca9: embeddings have 8 dimensions"):
        dml.embed(folder, images, compress="pca9")


@pytest.mark.promise(
    "guides/smaller_vectors.md",
    "embeddings vary in fewer dimensions than `pca<N>` or `project<N>` asks for: one line "
    "names the largest N; after a training run it is a warning, and the run is finished",
)
def test_a_form_that_does_not_fit_at_the_end_leaves_the_training(run_tiny, monkeypatch, caplog):
    def fail(*_):
        raise ValueError("pca4: the vectors vary in 2 dimensions only")

    monkeypatch.setattr(Compression, "fit", fail)
    summary, folder = run_tiny("protocol.epochs=1", "evaluation.compress=[pca4]")
    assert "compression" not in summary["jobs"][0]
    assert "evaluation.compress: pca4: the vectors vary in 2" in caplog.text
    assert (folder / "summary.json").exists()


@pytest.mark.promise(
    "guides/smaller_vectors.md",
    "a form is misspelled: one line lists the forms, with the nearest one",
)
def test_misspelled_forms_of_the_commands(capfd, tmp_path):
    words = ["embeddings=x.npz", "evaluation.compress=[int8,pac64]", f"outputs={tmp_path}"]
    assert evaluate_command(words) == 2
    message = (
        "evaluation.compress[1]: 'pac64' is none of pca<N>, project<N>, truncate<N>, float16, int8"
    )
    assert message in capfd.readouterr().err
    assert embed_command(["x", "y", "z.npz", "--compress", "int9"]) == 2
    error = capfd.readouterr().err
    assert error.startswith("error: compress: 'int9' is none of pca<N>")
    assert "did you mean 'int8'?" in error


def test_a_form_of_an_experiment_does_not_count(evaluated, tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=np.eye(4), labels=[0, 0, 1, 1])
    result = evaluated(f"embeddings={tmp_path}/x.npz", "evaluation.compress=[int8]")
    assert "compression" not in result


@pytest.fixture
def run_folder(run_tiny):
    return run_tiny("protocol.epochs=1")[1]


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 255, (30, 8, 8, 3), dtype=np.uint8)


@pytest.mark.promise(
    "guides/smaller_vectors.md",
    "a compressed file is evaluated with `evaluation.compress`, or trains a head "
    "(`data=features`): one line asks for a file without `--compress`",
)
def test_compressed_files_are_not_compressed_again(evaluated, run_folder, tmp_path):
    dml.embed(run_folder, "data=digits", tmp_path / "x.npz", compress="int8")
    given = ["embeddings", "evaluation.compress"]
    with pytest.raises(UserError, match=r"evaluation\.compress: .*x\.npz holds vectors as int8"):
        evaluated(f"embeddings={tmp_path}/x.npz", "evaluation.compress=[int8]", given=given)


@pytest.mark.parametrize("name", ["int8", "pca4+binary", "truncate4"])
def test_embed_stores_codes_fitted_on_the_split_train(run_folder, tmp_path, name):
    plain = dml.embed(run_folder, "data=digits", tmp_path / "plain.npz")
    made = dml.embed(run_folder, "data=digits", tmp_path / "x.npz", compress=name)
    training = plain.embeddings[plain.splits == "train"]
    expected = Compression.fit(name, training, "")
    stored = open_embeddings(tmp_path / "x.npz", decoded=False)
    assert np.array_equal(stored.embeddings, expected.encode(plain.embeddings))
    assert np.array_equal(made.embeddings, expected.decode(stored.embeddings))
    assert stored.compression.fitted_on == "the 901 images of the split train"
    assert stored.made_by["compress"] == name
    row = int(np.flatnonzero(plain.splits == "test")[0])
    assert len(dml.search(tmp_path / "x.npz", [row], 3)) == 3


def test_images_without_splits_fit_themselves(run_folder, images, tmp_path):
    plain = dml.embed(run_folder, images)
    dml.embed(run_folder, images, tmp_path / "x.npz", compress="int8")
    stored = open_embeddings(tmp_path / "x.npz", decoded=False)
    expected = Compression.fit("int8", plain.embeddings, "").encode(plain.embeddings)
    assert np.array_equal(stored.embeddings, expected)
    assert stored.compression.fitted_on == "all 30 images of the file"


def test_the_file_of_an_interrupted_call_is_the_same(run_folder, images, tmp_path, monkeypatch):
    dml.embed(run_folder, images, tmp_path / "whole.npz", compress="int8")
    monkeypatch.setattr(Compression, "fit", None)  # a call raises TypeError
    with pytest.raises(TypeError):
        dml.embed(run_folder, images, tmp_path / "x.npz", compress="int8")
    assert not (tmp_path / "x.npz").exists()
    monkeypatch.undo()
    dml.embed(run_folder, images, tmp_path / "x.npz", compress="int8")
    assert (tmp_path / "x.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.glob("*x.npz*")) == ["x.npz"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"views": 2}, "compress: views are for training"),
        ({"dtype": "float16"}, "compress: int8 and --float16 are two forms"),
        ({"thumbnails": 16}, "compress: viewers of a file with thumbnails"),
        ({"compress": "int4"}, "compress: 'int4' is none of"),
    ],
)
def test_options_that_exclude_a_form(run_folder, images, tmp_path, more, message):
    with pytest.raises((UserError, ConfigError), match=f"^{message}"):
        dml.embed(run_folder, images, tmp_path / "x.parquet", **{"compress": "int8"} | more)
