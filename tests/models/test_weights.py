import argparse
import errno
import hashlib
import io
import os
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn

from dml.core.download import Checksum, without_requests
from dml.core.errors import UserError
from dml.models import weights as weights_module
from dml.models.bn_inception import BNInception
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.models.weights import (
    PublishedWeights,
    downloaded_path,
    find_weights,
    load_weights,
    read_state_dict,
)
from tests.core.servers import Behavior, failures, serving


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


@pytest.fixture
def read_only(monkeypatch):
    """A folder of weights that belongs to somebody else."""

    def refuse(path, *arguments):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(weights_module, "wait_for_lock", refuse)


@pytest.mark.promise(
    "guides/without_internet.md",
    "the folders of weights and data are for reading only: what is there is used, and anything "
    "else is an error that names the variable or option to set",
)
@pytest.mark.parametrize("is_offline", [False, True])
def test_weights_in_a_folder_for_reading_only(read_only, content, sha256, is_offline):
    address = f"https://a.test/weights-{sha256(content)[:8]}.pth"
    path = downloaded_path(address)
    path.parent.mkdir(parents=True)
    with without_requests() if is_offline else nullcontext():
        missing = "is not there" if is_offline else r"cannot write to .*set TORCH_HOME="
        with pytest.raises(UserError, match=f"^backbone\\.weights: .*{missing}"):
            find_weights(address)
        path.write_bytes(content)
        assert find_weights(address) == path
        path.write_bytes(b"other")
        with pytest.raises(UserError, match="sha256"):
            find_weights(address)


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
    reason = {"missing.pth": "404", "other-12345678.pth": "sha256 is", "nobody": "refused"}[name]
    with serving(tmp_path, Behavior()) as address:
        url = "http://127.0.0.1:9/model.pth" if name == "nobody" else f"{address}/{name}"
        with pytest.raises(UserError, match=rf"backbone\.weights: .*{reason}.*place it") as error:
            load_weights(target, url)
    assert "\n" not in str(error.value)
    assert not [*Path(torch.hub.get_dir()).rglob("[!.]*.pth*")]


def test_a_file_that_was_placed_by_hand_is_compared_with_its_checksum(target, content):
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "weights-12345678.pth").write_bytes(content)
    with pytest.raises(UserError, match=r"weights-12345678\.pth: sha256 is .*place it here"):
        load_weights(target, "http://127.0.0.1:9/weights-12345678.pth")


def test_published_weights_come_from_a_mirror_and_are_compared(
    source, target, content, tmp_path, monkeypatch
):
    monkeypatch.setenv("DML_MIRROR", str(tmp_path))
    address = "http://127.0.0.1:9/weights.pth"
    right = Checksum("sha256", hashlib.sha256(content).hexdigest())
    (tmp_path / "weights.pth").write_bytes(content + b"0")
    with pytest.raises(UserError, match=r"sha256 is .*\n.*refused"):
        load_weights(target, "imagenet", PublishedWeights(address, right))
    (tmp_path / "weights.pth").write_bytes(content)
    load_weights(target, "imagenet", PublishedWeights(address, right))
    assert _same(source, target)


@pytest.mark.parametrize("failure", [*failures(b""), "dead"])
def test_weights_come_from_the_next_address(
    source, target, content, tmp_path, monkeypatch, capsys, failure
):
    monkeypatch.setattr("dml.core.download.SILENT_SECONDS", 1)
    behavior, reason = failures(content).get(failure, (Behavior(), "Connection refused"))
    (tmp_path / "weights.pth").write_bytes(content)
    published = Checksum("sha256", hashlib.sha256(content).hexdigest(), len(content))
    sound = Behavior()
    with serving(tmp_path, behavior) as first, serving(tmp_path, sound) as second:
        monkeypatch.setenv("DML_MIRROR", "http://127.0.0.1:9" if failure == "dead" else first)
        weights = PublishedWeights(f"{second}/weights.pth", published)
        load_weights(target, "imagenet", weights)
        assert _same(source, target)
        (line,) = capsys.readouterr().out.splitlines()
        assert re.search(f"{reason}.*; trying the next address$", line)
        load_weights(target, "imagenet", weights)
    assert len(sound.requests) == 1


def test_where_no_address_has_weights_the_message_has_all_that_is_needed(
    target, content, tmp_path, monkeypatch
):
    addresses = ["http://127.0.0.1:9/weights.pth", "http://127.0.0.1:10/weights.pth"]
    monkeypatch.setenv("DML_MIRROR", addresses[0].removesuffix("/weights.pth"))
    published = Checksum("sha256", hashlib.sha256(content).hexdigest(), len(content))
    with pytest.raises(UserError) as caught:
        load_weights(target, "imagenet", PublishedWeights(addresses[1], published))
    message = str(caught.value)
    for part in (*addresses, published.digits, f"{len(content):,} bytes", "weights.pth"):
        assert part in message
    assert message.count("Connection refused") == 2
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    (place,) = [word for word in message.split() if word.startswith(str(folder))]
    folder.mkdir(parents=True, exist_ok=True)
    Path(place.rstrip(",")).write_bytes(content)
    load_weights(target, "imagenet", PublishedWeights(addresses[1], published))


@pytest.mark.parametrize("classifier", ["last_linear", "fc", "new_fc", None])
@pytest.mark.parametrize("prefix", ["", "base_model.", "module.", "module.base_model."])
@pytest.mark.parametrize("is_caffe", [False, True])
def test_conversions_of_bn_inception_are_read(tmp_path, classifier, prefix, is_caffe):
    torch.manual_seed(0)
    network = BNInception(weights="none")
    state = {}
    for name, value in network.state_dict().items():
        as_row = is_caffe and value.ndim == 1
        state[prefix + name] = value[None] if as_row else value
    if classifier is not None:
        state[f"{prefix}{classifier}.weight"] = torch.ones(1000, 1024)
        state[f"{prefix}{classifier}.bias"] = torch.ones(1000)
    torch.save({"state_dict": state}, tmp_path / "converted.pth")
    assert _same(network, BNInception(weights=str(tmp_path / "converted.pth")))


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


@pytest.mark.parametrize("prefix", ["", "model.", "base_model.", "backbone.", "module."])
def test_a_prefix_is_at_the_beginning_of_a_name_alone(tmp_path, prefix):
    names = ["stem.weight", "submodel.weight", "my_backbone.weight", "part.model.weight"]
    state = {name: torch.full((1,), float(number)) for number, name in enumerate(names)}
    torch.save({f"{prefix}{name}": value for name, value in state.items()}, tmp_path / "a.pth")
    assert read_state_dict(tmp_path / "a.pth") == state


class Pooled(nn.Module):
    """A network with layers whose names begin as that of its classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.fc_norm = nn.LayerNorm(2)
        self.fc2 = nn.Linear(2, 3)


def test_layers_that_are_called_like_a_classifier_are_loaded(tmp_path):
    weights, network = Pooled(), Pooled()
    nn.init.normal_(weights.fc_norm.weight)
    state = weights.state_dict() | {"fc.weight": torch.ones(9, 3), "fc.bias": torch.ones(9)}
    torch.save(state, tmp_path / "a.pth")
    published = PublishedWeights("none", Checksum("sha256", "0" * 64), classifiers=("fc",))
    load_weights(network, str(tmp_path / "a.pth"), published)
    assert _same(network, weights)


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
