import io
import logging

import pytest
import torch

from dml.core.errors import UserError
from dml.models.small_cnn import SmallCNN
from dml.models.weights import (
    PublishedWeights,
    cache_folder,
    find_weights,
    load_weights,
)


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


def _no_leftovers():
    return not [path for path in cache_folder().glob("*") if path.suffix != ".lock"]


@pytest.mark.parametrize("weights", ["none", None])
def test_none_leaves_the_network_as_it_is(target, weights):
    before = {n: v.clone() for n, v in target.state_dict().items()}
    load_weights(target, weights, None)
    assert all(torch.equal(v, before[n]) for n, v in target.state_dict().items())


def test_a_local_file_with_or_without_the_right_hash(source, target, content, sha256, tmp_path):
    for name in ("plain.pth", f"named-{sha256(content)[:8]}.pth", f"all-{sha256(content)}.pth"):
        (tmp_path / name).write_bytes(content)
        torch.nn.init.zeros_(target.layers[0].weight)
        assert not _same(source, target)
        load_weights(target, str(tmp_path / name), None)
        assert _same(source, target)


def test_imagenet_without_published_weights(target):
    with pytest.raises(UserError, match=r"backbone\.weights=imagenet"):
        load_weights(target, "imagenet", None)


def test_a_url_is_fetched_once(server, source, target, content, sha256, caplog):
    caplog.set_level(logging.INFO)
    name = f"/weights-{sha256(content)[:8]}.pth"
    server.files[name] = content
    load_weights(target, server.address + name, None)
    assert _same(source, target)
    assert find_weights(server.address + name, None) == cache_folder() / name[1:]
    assert server.asked == [name]
    assert f"downloading {server.address}{name}" in caplog.text


@pytest.mark.parametrize("cause", ["missing", "cut off", "nobody listens"])
def test_what_cannot_be_fetched_gives_one_line(server, target, content, cause):
    url = server.address + "/model.pth"
    if cause == "cut off":
        server.files["/model.pth"] = content
        server.cut_off = True
    if cause == "nobody listens":
        url = "http://127.0.0.1:9/model.pth"
    reason = {
        "missing": "answers 404 Not Found",
        "cut off": r"the connection broke off|IncompleteRead",
        "nobody listens": "refused",
    }[cause]
    with pytest.raises(UserError, match=rf"backbone\.weights=.*({reason}).*place it here") as error:
        load_weights(target, url, None)
    assert "\n" not in str(error.value)
    assert str(cache_folder()) in str(error.value)
    assert _no_leftovers()


def _serve_hub(server, monkeypatch, content, etag):
    """Answers as the hub does: a redirect that carries the hash of a large file."""
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    server.files["/cdn"] = content
    server.redirects["/owner/net/resolve/main/model.safetensors"] = (
        "/cdn",
        {"X-Linked-Etag": f'"{etag}"'},
    )
    return PublishedWeights(file="net.safetensors", hub="owner/net")


def test_the_hub_with_the_right_hash(server, monkeypatch, content, sha256):
    published = _serve_hub(server, monkeypatch, content, sha256(content))
    path = find_weights("imagenet", published)
    assert path == cache_folder() / "net.safetensors"
    assert path.read_bytes() == content
    assert find_weights("imagenet", published) == path
    assert len(server.asked) == 2  # the redirect and the file, once


def test_the_hub_with_a_wrong_hash(server, monkeypatch, content):
    published = _serve_hub(server, monkeypatch, content, "ab" * 32)
    with pytest.raises(UserError, match=f"published is {'ab' * 32}.*nothing was kept"):
        find_weights("imagenet", published)
    assert _no_leftovers()


def test_a_file_placed_by_hand_wins_over_the_hub(server, monkeypatch, content):
    published = _serve_hub(server, monkeypatch, b"other", "")
    cache_folder().mkdir(parents=True)
    (cache_folder() / "net.safetensors").write_bytes(content)
    assert find_weights("imagenet", published).read_bytes() == content
    assert server.asked == []


def _in_the_hubs_cache(caches, content, name):
    root = caches / "hub" / "models--owner--net"
    (root / "blobs").mkdir(parents=True)
    (root / "blobs" / name).write_bytes(content)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("1234")
    (root / "snapshots" / "1234").mkdir(parents=True)
    (root / "snapshots" / "1234" / "model.safetensors").symlink_to(f"../../blobs/{name}")


def test_the_hubs_own_cache_spares_the_network(caches, content, sha256):
    _in_the_hubs_cache(caches, content, sha256(content))
    path = find_weights("imagenet", PublishedWeights(file="net.safetensors", hub="owner/net"))
    assert path.read_bytes() == content


def test_a_damaged_file_in_the_hubs_cache(caches, content):
    _in_the_hubs_cache(caches, content, "ab" * 32)
    with pytest.raises(UserError, match="delete it to download it again"):
        find_weights("imagenet", PublishedWeights(file="net.safetensors", hub="owner/net"))
