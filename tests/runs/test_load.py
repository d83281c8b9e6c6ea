import shutil
import warnings

import pytest
import torch
from PIL import Image

import dml
from dml.core.errors import UserError
from dml.runs.experiment import resume
from dml.runs.load import export_onnx


def test_runs_that_cannot_be_loaded(run_tiny, tmp_path):
    with pytest.raises(UserError, match=r"is not a run folder"):
        dml.load(tmp_path / "absent")
    _, folder = run_tiny("protocol.epochs=0")
    with pytest.raises(UserError, match=r"\(7, 0\) is not in .*: \[\(0, 0\)\]"):
        dml.load(folder, repeat=7)
    (folder / "checkpoints/repeat0-fold0/best.pt").write_text("{")
    with pytest.raises(UserError, match="is damaged or of another network"):
        dml.load(folder)
    (folder / "config.yaml").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        dml.load(folder)


def test_a_stored_config_does_not_read_the_environment(run_tiny, monkeypatch):
    monkeypatch.setenv("A_KEY", "a-secret")
    _, folder = run_tiny("protocol.epochs=0")
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(f"{text}note: '${{oc.env:A_KEY}}'\n")
    for read in (dml.load, resume):
        with pytest.raises(
            UserError, match=r"config\.yaml cannot be read: note holds \$\{"
        ) as error:
            read(folder)
        assert "a-secret" not in str(error.value)


def embed(model):
    embedder, transform = model
    assert not embedder.training
    image = Image.effect_mandelbrot((40, 30), (-2, -1, 1, 1), 50)
    with torch.inference_mode():
        return embedder(transform(image)[None])


def test_a_run_with_several_models(run_small, tmp_path):
    folder = run_small()
    with pytest.warns(UserWarning, match=r"has 4 models; this is the first: choose one"):
        first = dml.load(folder)
    models = dml.load_all(folder)
    assert list(models) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert torch.equal(embed(first), embed(models[0, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a model that is asked for needs no note
        third = dml.load(folder, fold=2)
        assert torch.equal(embed(third), embed(models[0, 2]))
        assert not torch.equal(embed(third), embed(first))
        exported = dml.export(folder, tmp_path / "exported", fold=2)
        assert torch.equal(embed(dml.load(exported)), embed(third))


def test_names_of_the_package():
    assert {"load", "load_all", "export"} <= set(dir(dml))
    with pytest.raises(AttributeError, match="module 'dml' has no attribute 'lod'"):
        dml.lod  # noqa: B018


def test_an_export_equals_the_run_without_it(run_tiny, tmp_path):
    summary, run = run_tiny("protocol.epochs=1")
    before, folder = dml.load(run), dml.export(run, tmp_path / "exported")
    shutil.rmtree(run)
    assert torch.equal(embed(before), embed(dml.load(folder)))
    files = {"config.yaml", "model.safetensors", "README.md"}
    assert {path.name for path in folder.iterdir()} == files
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlicense: other")
    assert "mfcwms on digits" in card
    assert f"MAP@R {100 * summary['metrics']['map_at_r']['mean']:.2f}" in card


def test_onnx(run_tiny, tmp_path):
    pytest.importorskip("onnxruntime")
    _, run = run_tiny("protocol.epochs=0")
    assert export_onnx(dml.export(run, tmp_path / "net")) <= 1e-5
    assert (tmp_path / "net" / "model.onnx").is_file()
