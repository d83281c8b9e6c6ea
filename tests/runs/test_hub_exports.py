"""Networks that were uploaded to the Hugging Face hub: `hf:<user>/<name>`, by a local server."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import dml
from dml.cli.shared_options import check_network
from dml.core.errors import UserError
from tests.core.servers import Behavior, serving

NAME = "hf:somebody/net"


@pytest.fixture
def use_hub(tmp_path, monkeypatch):
    """Makes an address that of the hub, with an empty cache."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("dml.core.hub.ANSWER_SECONDS", 2.0)

    def use(address):
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)

    return use


@pytest.fixture
def models(run_tiny, tmp_path):
    """The models of the hub: an export, and one that is none."""
    _, run = run_tiny("protocol.epochs=1")
    dml.export(run, tmp_path / "models" / "somebody" / "net")
    other = tmp_path / "models" / "somebody" / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    return tmp_path / "models"


def test_an_export_is_fetched_once_embeds_and_searches(models, use_hub, tmp_path):
    for number in range(4):
        Image.effect_noise((8, 8), 20 * number + 10).save(tmp_path / f"{number}.png")
    files = [str(tmp_path / f"{number}.png") for number in range(3)]
    behavior = Behavior(hub=True)
    with serving(models, behavior) as address:
        use_hub(address)
        made = dml.embed(NAME, files, tmp_path / "x.npz")
        asked = len(behavior.questions)
        expected = dml.embed(models / "somebody" / "net", files)
        assert np.array_equal(made.embeddings, expected.embeddings)
        found = dml.search(tmp_path / "x.npz", [tmp_path / "3.png"], k=2)
        embedder, _ = dml.load(NAME)
        assert len(found) == 2
        assert len(behavior.questions) == asked
        pinned, _ = dml.load(f"{NAME}@v1")
    for name, value in embedder.state_dict().items():
        assert torch.equal(pinned.state_dict()[name], value)
    dml.load(NAME)  # without the server
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(UserError, match="nothing is fetched that a file names"):
        dml.search(tmp_path / "x.npz", [tmp_path / "3.png"], k=2)


def test_what_is_no_export_and_offline(models, use_hub, monkeypatch):
    with serving(models, Behavior(hub=True)) as address:
        use_hub(address)
        with pytest.raises(UserError, match=r"somebody/other on .* has no config\.yaml"):
            dml.load("hf:somebody/other")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(UserError, match="HF_HUB_OFFLINE forbids requests"):
            dml.load(NAME)


def test_a_folder_of_somebody_names_no_class_of_others(models, use_hub):
    config = models / "somebody" / "net" / "config.yaml"
    config.write_text(config.read_text().replace("dml.losses", "os.path", 1))
    with serving(models, Behavior(hub=True)) as address:
        use_hub(address)
        with pytest.raises(UserError, match="would run code of"):
            dml.load(NAME)


def test_a_path_without_the_prefix_asks_nobody(models, use_hub, tmp_path):
    behavior = Behavior(hub=True)
    with serving(models, behavior) as address:
        use_hub(address)
        with pytest.raises(UserError):
            dml.load("somebody/net")
        dml.load(models / "somebody" / "net")
        assert behavior.questions == behavior.requests == []


@pytest.mark.parametrize("name", ["hf:", "hf:net", "hf:a/b/c", "hf:../net", "hf:a/b@", "hf:a/$b"])
def test_wrong_names(name):
    for call in (dml.load, lambda text: check_network(text, False)):
        with pytest.raises(UserError, match=r"hf:<user>/<name>\[@<revision>\]"):
            call(name)


def test_a_number_of_a_model():
    with pytest.raises(UserError, match="is a single network"):
        dml.load(NAME, repeat=1)
