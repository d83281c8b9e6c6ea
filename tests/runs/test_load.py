import json
import shutil
import warnings

import pytest
import torch
from PIL import Image

import dml
from dml.core.errors import UserError
from dml.runs.experiment import resume
from dml.runs.load import CONFIG, WEIGHTS
from tests.conftest import TINY, compose_config, run_config, without_pictures


def test_runs_that_cannot_be_loaded(run_tiny, tmp_path):
    with pytest.raises(UserError, match=r"config\.yaml cannot be read: .*No such file"):
        dml.load(tmp_path / "absent")
    _, folder = run_tiny()
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

    exported = dml.export(folder, tmp_path / "exported", fold=2)
    assert torch.equal(embed(dml.load(exported)), embed(third))
    with pytest.raises(UserError, match="is one model; leave out repeat and fold"):
        dml.load(exported, fold=2)


def test_names_of_the_package():
    assert {"load", "load_all", "export"} <= set(dir(dml))
    with pytest.raises(AttributeError, match="module 'dml' has no attribute 'lod'"):
        dml.lod  # noqa: B018


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a tiny run, which tests copy."""
    cfg = compose_config(f"outputs={tmp_path_factory.mktemp('trained')}", *TINY)
    with without_pictures():
        return run_config(cfg)[1]


@pytest.fixture
def exported(trained, tmp_path):
    """A run folder, and the folder of its exported network."""
    folder = shutil.copytree(trained, tmp_path / "run")
    return folder, dml.export(folder, tmp_path / "exported")


def edit(folder, **nodes):
    """Changes options of a description: `backbone={"width": 3}`."""
    description = json.loads((folder / CONFIG).read_text())
    for name, options in nodes.items():
        description[name] |= options
    (folder / CONFIG).write_text(json.dumps(description))


def assert_same(one, other):
    image = Image.effect_mandelbrot((40, 30), (-2, -1, 1, 1), 50)
    embeddings = []
    for embedder, transform in (one, other):
        assert not embedder.training
        with torch.inference_mode():
            embeddings.append(embedder(transform(image)[None]))
    assert torch.equal(*embeddings)


def test_an_export_equals_the_run_without_it(exported):
    run_folder, folder = exported
    before = dml.load(run_folder)
    shutil.rmtree(run_folder)
    assert_same(before, dml.load(folder))
    assert {path.name for path in folder.iterdir()} == {CONFIG, WEIGHTS}
    training = json.loads((folder / CONFIG).read_text())["training"]
    assert (training["data"], training["loss"]) == ("digits", "mfcwms")


class TestHub:
    """Models on the Hugging Face hub, whose download is faked."""

    @pytest.fixture
    def asked(self, exported, monkeypatch):
        """The downloads that were asked for; each returns the exported folder."""
        _, folder = exported
        asked = []

        def snapshot_download(hub_id, allow_patterns):
            asked.append((hub_id, *allow_patterns))
            return str(folder)

        monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
        return asked

    def test_a_model_is_found_by_its_name(self, exported, asked):
        run_folder, _ = exported
        assert_same(dml.load(run_folder), dml.load("user/digits-net"))
        assert asked == [("user/digits-net", CONFIG, WEIGHTS)]

    def test_no_connection_is_one_line(self, monkeypatch):
        def fail(*arguments, **options):
            raise ConnectionError("Name or service not known\nmore")

        monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
        with pytest.raises(UserError, match=r"cannot be reached \(Name or service") as raised:
            dml.load("user/digits-net")
        assert str(raised.value).count("\n") == 0

    @pytest.mark.parametrize(
        "nodes",
        [
            {"backbone": {"_target_": "os.system"}},
            {"backbone": {"_target_": "dml.models.hub.os.system"}},
            {"backbone": {"width": {"_target_": "os.getpid"}}},
            {"embedder": {"size": {"_target_": "os.getpid"}}},
            {"embedder": {"size": [[{"_target_": "os.getpid"}]]}},
            {"backbone": {"weights": "https://example.org/weights.pth"}},
        ],
    )
    def test_code_of_others_is_not_run(self, exported, asked, nodes):
        _, folder = exported
        edit(folder, **nodes)
        with pytest.raises(UserError, match="may run any code"):
            dml.load("user/digits-net")
