import json
import warnings

import pytest
import torch
from PIL import Image

import dml
from dml.core.errors import UserError
from dml.runs.experiment import resume


def test_runs_that_cannot_be_loaded(run_tiny, tmp_path):
    with pytest.raises(UserError, match=r"has no config\.yaml"):
        dml.load(tmp_path)
    with pytest.raises(UserError, match=f"run: folder {tmp_path}/absent does not exist"):
        dml.load(tmp_path / "absent")
    _, folder = run_tiny()
    with pytest.raises(UserError, match="is a run folder; name another folder"):
        dml.export(folder, folder)
    assert not (folder / "model.safetensors").exists()
    with pytest.raises(UserError, match="there is repeat0-fold0"):
        dml.load(folder, repeat=7)
    (folder / "config.yaml").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        dml.load(folder)


def test_a_stored_config_does_not_read_the_environment(run_tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("A_KEY", "a-secret")
    _, folder = run_tiny()
    exported = dml.export(folder, tmp_path / "exported")
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(f"{text}note: '${{oc.env:A_KEY}}'\n")
    for read in (dml.load, resume):
        with pytest.raises(
            UserError, match=r"config\.yaml cannot be read: note holds \$\{"
        ) as error:
            read(folder)
        assert "a-secret" not in str(error.value)
    description = json.loads((exported / "config.json").read_text())
    description["backbone"]["name"] = "${oc.env:A_KEY}"
    (exported / "config.json").write_text(json.dumps(description))
    with pytest.raises(UserError, match=r"config\.json .*backbone\.name holds \$\{"):
        dml.load(exported)


def embed(model):
    embedder, transform = model
    with torch.inference_mode():
        return embedder(transform(Image.new("L", (32, 32), 200))[None])


def test_a_run_with_several_models(run_small, tmp_path):
    folder = run_small()
    with pytest.warns(UserWarning, match=r"has 4 models; this is repeat0-fold0: choose one"):
        first = dml.load(folder)
    models = dml.load_all(folder)
    assert list(models) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert torch.equal(embed(first), embed(models[0, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a model that is asked for needs no note
        third = dml.load(folder, fold=2)
        assert torch.equal(embed(third), embed(models[0, 2]))
        assert not torch.equal(embed(third), embed(first))
        assert torch.equal(embed(dml.load(folder, repeat=0)), embed(first))

    with pytest.raises(UserError, match="has 4 models: choose one with repeat= and fold="):
        dml.export(folder, tmp_path / "exported")
    exported = dml.export(folder, tmp_path / "exported", fold=2)
    assert torch.equal(embed(dml.load(exported)), embed(third))
    with pytest.raises(UserError, match="is one model; leave out repeat and fold"):
        dml.load(exported, fold=2)


def test_names_of_the_package():
    assert {"load", "load_all", "export"} <= set(dir(dml))
    with pytest.raises(AttributeError, match="module 'dml' has no attribute 'lod'"):
        dml.lod  # noqa: B018
