import argparse
import io
from pathlib import Path

import pytest
import torch

from dml.core.errors import UserError
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.models.weights import find_weights, load_weights, read_state_dict
from tests.core.servers import Behavior, serving


@pytest.fixture
def source():
    torch.manual_seed(1)
    return SmallCNN(width=2)


@pytest.fixture
def content(source):
    buffer = io.BytesIO()
    torch.save(source.state_dict(), buffer)
    return buffer.getvalue()


@pytest.fixture
def target():
    torch.manual_seed(2)
    return SmallCNN(width=2)


def _same(a, b):
    return all(torch.equal(v, b.state_dict()[n]) for n, v in a.state_dict().items())


def test_none_and_a_file(source, target, content, tmp_path):
    (tmp_path / "plain.pth").write_bytes(content)
    load_weights(target, "none")
    assert not _same(source, target)
    load_weights(target, str(tmp_path / "plain.pth"))
    assert _same(source, target)


@pytest.mark.parametrize("weights", ["imagenet", "imagenets", "no.pth"])
def test_weights_that_there_are_not(target, weights):
    with pytest.raises(UserError, match=rf"backbone\.weights={weights}"):
        load_weights(target, weights)


def test_a_url_is_fetched_once(source, target, content, sha256, tmp_path):
    name, behavior = f"weights-{sha256(content)[:8]}.pth", Behavior()
    (tmp_path / name).write_bytes(content)
    with serving(tmp_path, behavior) as address:
        load_weights(target, f"{address}/{name}")
        assert _same(source, target)
        assert find_weights(f"{address}/{name}").name == name
    assert len(behavior.requests) == 1


@pytest.mark.parametrize("name", ["missing.pth", "other-12345678.pth", "nobody"])
def test_what_cannot_be_fetched_gives_one_line(target, content, tmp_path, name):
    (tmp_path / "other-12345678.pth").write_bytes(content)
    reason = {"missing.pth": "404", "other-12345678.pth": "invalid hash", "nobody": "refused"}[name]
    with serving(tmp_path, Behavior()) as address:
        url = "http://127.0.0.1:9/model.pth" if name == "nobody" else f"{address}/{name}"
        with pytest.raises(UserError, match=rf"backbone\.weights: .*{reason}.*place it") as error:
            load_weights(target, url)
    assert "\n" not in str(error.value)
    assert not [path for path in Path(torch.hub.get_dir()).rglob("*") if path.is_file()]


def test_safetensors_and_wrapped_states_are_read(tmp_path):
    from safetensors.torch import save_file

    state = SmallCNN(width=2).state_dict()
    save_file(state, tmp_path / "a.safetensors")
    torch.save({"state_dict": {f"module.{n}": v for n, v in state.items()}}, tmp_path / "b.pth")
    torch.save({"model": state, "epoch": 3}, tmp_path / "c.pth")
    arguments = argparse.Namespace(lr=1.0)
    torch.save({"state_dict": state, "args": arguments}, tmp_path / "d.pth")
    torch.save({"model_state_dict": state, "epoch": 3}, tmp_path / "e.pth")
    lightning = {f"model.{n}": v for n, v in state.items()} | {"criterion.proxies": torch.ones(2)}
    torch.save({"state_dict": lightning, "pytorch-lightning_version": "2.0"}, tmp_path / "f.ckpt")
    for name in ("a.safetensors", "b.pth", "c.pth", "d.pth", "e.pth", "f.ckpt"):
        result = read_state_dict(tmp_path / name)
        assert set(result) == set(state)
        assert all(torch.equal(result[n], v) for n, v in state.items())
    torch.save(Embedder(SmallCNN(width=2), 5).state_dict(), tmp_path / "embedder.pth")
    assert set(read_state_dict(tmp_path / "embedder.pth")) == set(state)


def test_files_that_hold_no_weights_are_refused_in_one_line(tmp_path):
    (tmp_path / "text.safetensors").write_text("<html>\nnot found\n</html>")
    torch.save([1, 2], tmp_path / "list.pth")
    torch.save(SmallCNN(), tmp_path / "module.pth")  # pickled code is never run
    torch.save({"state_dict": SmallCNN().state_dict(), "loss": SmallCNN()}, tmp_path / "both.pth")
    torch.save({"state_dict": {}, "epoch": 3}, tmp_path / "empty.pth")
    torch.save({"config": {"lr": 1.0}, "epoch": 3}, tmp_path / "numbers.pth")
    refused = {
        "text.safetensors": "cannot be read: damaged",
        "list.pth": "cannot be read: damaged",
        "module.pth": "also holds .*SmallCNN.*, and only tensors are unpickled",
        "both.pth": "also holds .*SmallCNN.*torch.save",
        "empty.pth": "holds no tensors by name, but nothing",
        "numbers.pth": "holds no tensors by name, but config, epoch",
    }
    for name, reason in refused.items():
        with pytest.raises(UserError, match=f"{name} {reason}") as error:
            read_state_dict(tmp_path / name)
        assert "\n" not in str(error.value)
