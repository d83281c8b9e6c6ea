"""Pretrained weights: `imagenet`, `none`, a file or a URL; loaded strictly or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from dml.core.errors import UserError, nearest
from dml.models.download import (
    UnreachableError,
    cached_by_hub,
    check_hash,
    download,
    hub_url,
    promised_hash,
)


@dataclass(frozen=True)
class Published:
    """Where a network's ImageNet weights are published.

    Attributes:
        file: their name in the cache folder; `name-<sha256>.ext` is checked.
        url: where to fetch it, or
        hub: the id of a model on the Hugging Face hub.
    """

    file: str
    url: str = ""
    hub: str = ""


def cache_folder() -> Path:
    """Where downloaded weights are kept and a user may place some: torch.hub's own folder."""
    return Path(torch.hub.get_dir()) / "checkpoints"


def load_weights(
    network: nn.Module,
    weights: str | None,
    published: Published | None,
    classifier: str | None = None,
    adapt: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None,
) -> None:
    """Loads what the option `backbone.weights` names into `network`.

    Args:
        network: a backbone without its classifier.
        weights: "imagenet", "none" (or None), a file or an http(s) URL. Names that end in
            `-<at least 8 digits of the sha256>.<extension>` are held to it.
        published: the ImageNet weights; None if there are none.
        classifier: name of the layer in the file that `network` does without.
        adapt: called on what the file holds before it is loaded.

    Raises:
        UserError: there is no such file, it cannot be fetched or read, has the wrong hash, or
            belongs to another network.
    """
    if weights is None or weights == "none":
        return
    path = locate(weights, published)
    state = read_state(path)
    if classifier:
        state = {n: v for n, v in state.items() if not n.startswith(classifier + ".")}
    load_state(network, adapt(state) if adapt else state, path)


def locate(weights: str, published: Published | None) -> Path:
    """The file that `backbone.weights` names, downloaded if need be, its hash checked."""
    if weights == "imagenet":
        if published is None:
            raise UserError("backbone.weights=imagenet: this network has none; use weights=none")
        return _locate_published(published)
    if urlsplit(weights).scheme in ("http", "https"):
        return _locate_url(weights)
    path = Path(weights).expanduser()
    if not path.is_file():
        raise UserError(
            f"backbone.weights={weights} is no file; "
            f"give imagenet, none, a file or an http(s) URL{nearest(weights, ['imagenet', 'none'])}"
        )
    check_hash(path, promised_hash(path.name), "get it again, or drop the hash from its name")
    return path


def _locate_published(published: Published) -> Path:
    path = cache_folder() / published.file
    if not published.hub:
        return _cached(path, published.url, "imagenet")
    if not path.is_file() and (elsewhere := cached_by_hub(published.hub)):
        return elsewhere
    return _cached(path, hub_url(published.hub), "imagenet")


def _locate_url(url: str) -> Path:
    name = Path(urlsplit(url).path).name
    if not promised_hash(name):  # many servers have a model.pth
        name = f"{hashlib.sha256(url.encode()).hexdigest()[:12]}_{name}"
    return _cached(cache_folder() / name, url, url)


def _cached(path: Path, url: str, weights: str) -> Path:
    """The file at `path`, downloaded unless it or one placed by hand is there already."""
    if not path.is_file():
        try:
            download(url, path)
        except UnreachableError as error:
            raise UserError(
                f"backbone.weights={weights}: {url} cannot be fetched ({error}); "
                f"fetch it elsewhere and place it here as {path}"
            ) from error
        except OSError as error:
            raise UserError(
                f"backbone.weights={weights} cannot be stored as {path} ({error.strerror}); "
                "make room there, or set TORCH_HOME to another folder"
            ) from error
    check_hash(path, promised_hash(path.name), "delete it to download it again")
    return path


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors by name in a `.safetensors` file or one that `torch.save` wrote.

    Looks inside `state_dict` or `model` and drops the `module.` that data parallelism puts before
    names. Nothing but tensors is unpickled.
    """
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: object = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files fail in as many ways as there are formats
        raise UserError(
            f"backbone.weights: {path} cannot be read: damaged, or no state dict that torch.save "
            "wrote, nor .safetensors"
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    named: Mapping[str, object] = content if isinstance(content, Mapping) else {}
    state = {n.removeprefix("module."): v for n, v in named.items() if isinstance(v, Tensor)}
    if not state:
        raise UserError(f"backbone.weights: {path} holds no state dict")
    return state


def load_state(network: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Loads `state` strictly; raises UserError that names the first difference."""
    own = network.state_dict()
    # Vectors of a network converted from Caffe can be 1×n.
    fitting = {
        name: value[0] if name in own and value.shape == (1, *own[name].shape) else value
        for name, value in state.items()
    }
    difference = next(_differences(own, fitting), None)
    if difference is not None:
        raise UserError(f"backbone.weights: {path} belongs to another network: {difference}")
    network.load_state_dict(fitting)


def _differences(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Iterator[str]:
    for name, value in own.items():
        if name not in state:
            if not name.endswith("num_batches_tracked"):  # newer than many published weights
                yield f"it lacks {name}"
        elif state[name].shape != value.shape:
            yield f"{name} is {_shape(state[name])} instead of {_shape(value)}"
    for name in state:
        if name not in own:
            yield f"this one has no {name}"


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"
