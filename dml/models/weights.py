"""Pretrained weights: `imagenet`, `none`, a file or a URL; loaded strictly or not at all."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from dml.core.download import Checksum, ChecksumError, DownloadError, download
from dml.core.errors import UserError, nearest
from dml.core.locks import wait_for_lock
from dml.models.hub import find_in_hub_cache, hub_token, hub_url
from dml.models.state_dict import load_strictly, read_state_dict

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedWeights:
    """Place of a network's published ImageNet weights.

    Attributes:
        file: name in the cache folder; `name-<sha256>.ext` is checked.
        url: address of the file, or
        hub: id of a model on the Hugging Face hub.
    """

    file: str
    url: str = ""
    hub: str = ""


def cache_folder() -> Path:
    """Returns torch.hub's folder, for downloaded weights and those that a user places there."""
    return Path(torch.hub.get_dir()) / "checkpoints"


def load_weights(
    network: nn.Module,
    weights: str | None,
    published: PublishedWeights | None,
    classifier: str | None = None,
    adapt: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None,
) -> None:
    """Loads the weights of the option `backbone.weights` into `network`.

    Args:
        network: a backbone without its classifier.
        weights: "imagenet", "none" (or None), a file or an http(s) URL. Names that end in
            `-<at least 8 digits of the sha256>.<extension>` are checked against it.
        published: the ImageNet weights; None if there are none.
        classifier: name of the layer in the file that `network` does not have.
        adapt: converts the tensors of the file before they are loaded.

    Raises:
        UserError: the file does not exist, cannot be downloaded or read, has the wrong hash, or
            belongs to another network.
    """
    if weights is None or weights == "none":
        return
    path = find_weights(weights, published)
    state = read_state_dict(path)
    if classifier:
        state = {n: v for n, v in state.items() if not n.startswith(classifier + ".")}
    load_strictly(network, adapt(state) if adapt else state, path)


def find_weights(weights: str, published: PublishedWeights | None) -> Path:
    """Returns the file of `backbone.weights`, downloaded if necessary, with its hash checked."""
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
    try:
        return _download_once(path, hub_url(published.hub), "imagenet", hub_token())
    except UserError as error:
        cause = error.__cause__ and error.__cause__.__cause__
        if isinstance(cause, HTTPError) and cause.code in (401, 403):
            raise UserError(
                f"backbone.weights=imagenet: {hub_url(published.hub)} is gated: accept its terms "
                f"on the page of {published.hub}, and set HF_TOKEN=<token>; or place the file here "
                f"as {path}"
            ) from error
        raise


def _find_url(url: str) -> Path:
    name = Path(urlsplit(url).path).name
    if named_checksum(name) is None:  # many servers have a model.pth
        name = f"{hashlib.sha256(url.encode()).hexdigest()[:12]}_{name}"
    return _download_once(cache_folder() / name, url, url)


def _download_once(path: Path, url: str, weights: str, token: str | None = None) -> Path:
    """Returns `path`, downloaded unless it is there or a user placed it there."""
    if path.is_file():
        return _check_hash(path, "delete it to download it again")
    try:
        with wait_for_lock(path.with_name(f".{path.name}.lock"), f"downloading {path}"):
            log.info("downloading %s to %s", url, path)
            return download(url, path, named_checksum(path.name), token=token)
    except DownloadError as error:
        raise UserError(
            f"backbone.weights={weights}: {error}; download it elsewhere and place it here as "
            f"{path}, or start from random weights with backbone.weights=none"
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
    """Returns the SHA-256 that names like `resnet50-0676ba61.pth` contain, if any."""
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
