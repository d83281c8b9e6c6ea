"""Pretrained weights: `imagenet`, `none`, a file or a URL; loaded strictly or not at all."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from dml.core.download import Checksum, ChecksumError, DownloadError, download
from dml.core.errors import UserError, nearest
from dml.core.locks import wait_for_lock
from dml.models.hub import find_in_hub_cache, hub_url

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedWeights:
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
    published: PublishedWeights | None,
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
    path = find_weights(weights, published)
    state = read_state(path)
    if classifier:
        state = {n: v for n, v in state.items() if not n.startswith(classifier + ".")}
    load_state(network, adapt(state) if adapt else state, path)


def find_weights(weights: str, published: PublishedWeights | None) -> Path:
    """The file that `backbone.weights` names, downloaded if need be, its hash checked."""
    if weights == "imagenet":
        if published is None:
            raise UserError("backbone.weights=imagenet: this network has none; use weights=none")
        return _find_published(published)
    if urlsplit(weights).scheme in ("http", "https"):
        return _find_url(weights)
    path = Path(weights).expanduser()
    if not path.is_file():
        raise UserError(
            f"backbone.weights={weights} is not a file; "
            f"give imagenet, none, a file or an http(s) URL{nearest(weights, ['imagenet', 'none'])}"
        )
    return _check_hash(path, "get it again, or drop the hash from its name")


def _find_published(published: PublishedWeights) -> Path:
    path = cache_folder() / published.file
    if not published.hub:
        return _download_once(path, published.url, "imagenet")
    if not path.is_file() and (cached := find_in_hub_cache(published.hub)):
        return cached
    return _download_once(path, hub_url(published.hub), "imagenet")


def _find_url(url: str) -> Path:
    name = Path(urlsplit(url).path).name
    if named_checksum(name) is None:  # many servers have a model.pth
        name = f"{hashlib.sha256(url.encode()).hexdigest()[:12]}_{name}"
    return _download_once(cache_folder() / name, url, url)


def _download_once(path: Path, url: str, weights: str) -> Path:
    """Returns `path`, downloaded unless it or a file placed by hand is there already."""
    if path.is_file():
        return _check_hash(path, "delete it to download it again")
    try:
        with wait_for_lock(path.with_name(f".{path.name}.lock"), f"downloading {path}"):
            log.info("downloading %s to %s", url, path)
            return download(url, path, named_checksum(path.name))
    except DownloadError as error:
        raise UserError(
            f"backbone.weights={weights}: {error}; download it elsewhere and place it here as "
            f"{path}"
        ) from error
    except ChecksumError as error:
        raise UserError(
            f"backbone.weights={weights}: {url} is damaged or another file ({error}); nothing was "
            f"kept"
        ) from error
    except OSError as error:
        raise UserError(
            f"backbone.weights={weights} cannot be stored as {path} ({error.strerror}); "
            "make room there, or set TORCH_HOME to another folder"
        ) from error


def named_checksum(name: str) -> Checksum | None:
    """Returns the SHA-256 that names like `resnet50-0676ba61.pth` begin to spell, if any."""
    match = re.search(r"-([0-9a-f]{8,64})\.[^.]+$", name)
    return Checksum("sha256", match.group(1)) if match else None


def _check_hash(path: Path, advice: str) -> Path:
    checksum = named_checksum(path.name)
    try:
        if checksum is not None:
            checksum.check(path)
    except ChecksumError as error:
        raise UserError(
            f"backbone.weights: {path} is not what its name says ({error}); {advice}"
        ) from error
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
