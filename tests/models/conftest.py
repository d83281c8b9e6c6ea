import hashlib

import pytest


@pytest.fixture(autouse=True)
def caches(tmp_path_factory, monkeypatch):
    """Empty caches, and a hub where nobody listens: no test depends on the network."""
    home = tmp_path_factory.mktemp("caches")
    monkeypatch.setenv("TORCH_HOME", str(home / "torch"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return home


@pytest.fixture
def sha256():
    return lambda content: hashlib.sha256(content).hexdigest()


@pytest.fixture
def snapshot(caches):
    """Returns the empty folder of a model in the cache of the hub."""

    def make(name):
        model = caches / "hub" / f"models--{name.replace('/', '--')}"
        folder = model / "snapshots" / "1234"
        folder.mkdir(parents=True)
        (model / "refs").mkdir()
        (model / "refs" / "main").write_text("1234")
        return folder

    return make
