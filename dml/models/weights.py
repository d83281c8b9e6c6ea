"""Pretrained weights from a file or URL: read without running code, and loaded strictly."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from urllib.parse import urlsplit

import torch
from torch import Tensor, nn

from dml.core.download import Checksum, ChecksumError, download, requests_allowed, with_mirror
from dml.core.errors import UserError, first_line, nearest
from dml.core.locks import wait_for_lock

DIGITS = re.compile(r"-([0-9a-f]{8,64})\.[^.]+$")  # of a file named after its sha256
LIGHTNING = "model."  # in the checkpoint of a LightningModule
BACKBONE = "backbone."
TEMPORAL = "base_model."  # in the checkpoints of TSM and TSN


@dataclass(frozen=True)
class PublishedWeights:
    """Weights that `backbone.weights=imagenet` stands for.

    Attributes:
        address: http(s) URL of the file.
        checksum: of the file.
        classifiers: names of the classifier in this file and in others of the same network.
    """

    address: str
    checksum: Checksum
    classifiers: Sequence[str] = ()


@dataclass(frozen=True)
class WeightFile:
    """A file of weights that a network needs, for lists of what is downloaded.

    Attributes:
        name: of the file.
        path: of the local file; None: it has to be downloaded.
        sources: where it can be had, a line each.
        measure: returns its bytes, for which it may ask a server; None: nobody knows.
    """

    name: str
    path: Path | None
    sources: Sequence[str]
    measure: Callable[[], int | None]


def describe_option(
    weights: str | None, imagenet: PublishedWeights | None = None
) -> WeightFile | None:
    """Returns the file of the option `backbone.weights`; None: no file.

    Args:
        weights: "imagenet", "none" (or None), a file or an http(s) URL.
        imagenet: the ImageNet weights; None if there are none.
    """
    address, checksum = weights, None
    if weights == "imagenet" and imagenet is not None:
        address, checksum = imagenet.address, imagenet.checksum
    if address is None or address in ("none", "imagenet"):
        return None
    return describe_address(address, checksum)


def describe_address(address: str, checksum: Checksum | None = None) -> WeightFile:
    """Returns the file at an http(s) URL, or a local file."""
    path = downloaded_path(address) if is_url(address) else Path(address).expanduser()
    size = None if checksum is None else checksum.size
    sources = [address]
    if is_url(address):
        known = "no checksum is published"
        if checksum is not None:
            known = checksum.describe()
        sources = with_mirror(published_name(address), [f"{address}  {known}"])
    return WeightFile(path.name, path if path.is_file() else None, sources, lambda: size)


def load_weights(
    network: nn.Module, weights: str | None, imagenet: PublishedWeights | None = None
) -> None:
    """Loads the weights of the option `backbone.weights` into `network`.

    Args:
        network: a backbone without its classifier.
        weights: "imagenet", "none" (or None), a file or an http(s) URL.
        imagenet: the ImageNet weights; None if there are none.

    Raises:
        UserError: the file does not exist, cannot be downloaded or read, has the wrong hash, or
            belongs to another network.
    """
    path = find_option(weights, imagenet)
    if path is None:
        return
    expected = network.state_dict()
    classifiers = () if imagenet is None else imagenet.classifiers
    left_out = tuple(f"{classifier}." for classifier in classifiers)
    state = {}
    for name, value in read_state_dict(path).items():
        if name.startswith(left_out):
            continue
        # Vectors of a network converted from Caffe can be 1×n.
        if name in expected and value.shape == (1, *expected[name].shape):
            value = value[0]
        state[name] = value
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        reason = shorten(str(error), 300, placeholder=" …")
        raise UserError(
            f"backbone.weights={weights}: {path} is of another network ({reason}); the file has "
            f"{', '.join(list(state)[:3])}"
        ) from error


def find_option(weights: str | None, imagenet: PublishedWeights | None = None) -> Path | None:
    """Returns the file of the option `backbone.weights`, downloaded if necessary; None: no file.

    Args:
        weights: "imagenet", "none" (or None), a file or an http(s) URL.
        imagenet: the ImageNet weights; None if there are none.

    Raises:
        UserError: the file does not exist, cannot be downloaded, or has the wrong hash.
    """
    if weights is None or weights == "none":
        return None
    if weights != "imagenet":
        return find_weights(weights)
    if imagenet is None:
        raise UserError("backbone.weights=imagenet: this network has none; use weights=none")
    return find_weights(imagenet.address, imagenet.checksum)


def find_weights(weights: str, checksum: Checksum | None = None) -> Path:
    """Returns a local file; downloads a URL to torch.hub's folder if necessary.

    A file named `<name>-<at least 8 digits of the sha256>.<extension>` is compared with its
    checksum, also if it was there before.

    Args:
        weights: a file or an http(s) URL.
        checksum: of the file, if more is known than its name says.

    Raises:
        UserError: there is no such file, it cannot be downloaded, or it is another one.
    """
    if not is_url(weights):
        path = Path(weights).expanduser()
        if path.is_file():
            return path
        raise UserError(
            f"backbone.weights={weights} is not a file; "
            f"give imagenet, none, a file or an http(s) URL{nearest(weights, ['imagenet', 'none'])}"
        )
    return download_weights(weights, with_mirror(published_name(weights), [weights]), checksum)


def is_url(weights: str) -> bool:
    """Returns whether weights are an http(s) URL, not a file."""
    return urlsplit(weights).scheme in ("http", "https")


def published_name(address: str) -> str:
    """Returns the name of the file at an address, which is also its name in a mirror."""
    return Path(urlsplit(address).path).name


def downloaded_path(address: str) -> Path:
    """Returns where the file of an address is kept: in torch.hub's folder (`TORCH_HOME`)."""
    name = published_name(address)
    if DIGITS.search(name) is None:  # many servers have a file of the same name, such as model.pth
        name = f"{hashlib.sha256(address.encode()).hexdigest()[:12]}_{name}"
    return Path(torch.hub.get_dir()) / "checkpoints" / name


def download_weights(
    address: str, sources: Sequence[str], checksum: Checksum | None = None
) -> Path:
    """Returns the file of an address, downloaded from the first source that has it.

    Args:
        address: by which the file is known.
        sources: addresses that are tried, in order.
        checksum: of the file, if more is known than its name says.

    Raises:
        UserError: no source has the file, or it is another one.
    """
    path = downloaded_path(address)
    digits = DIGITS.search(path.name)
    if checksum is None and digits is not None:
        checksum = Checksum("sha256", digits[1])
    known = "" if checksum is None else f" ({checksum.describe()})"
    advice = (
        f"download it elsewhere{known} and place it here as {path}, or start from random weights "
        f"with backbone.weights=none"
    )
    try:
        if path.is_file() or not requests_allowed():  # nothing is written: it may be read-only
            return download(sources, path, checksum, advice=advice)
        with wait_for_lock(path.with_name(f".{path.name}.lock"), f"downloading {path.name}"):
            return download(sources, path, checksum, advice=advice)
    except ChecksumError as error:
        raise UserError(f"backbone.weights: {error}; {advice}") from error
    except OSError as error:
        raise UserError(
            f"backbone.weights: cannot write to {path.parent} ({first_line(error)}); set "
            f"TORCH_HOME=<folder that you can write to>, or backbone.weights=<file>"
        ) from error
    except UserError as error:  # of the network
        raise UserError(f"backbone.weights: {error}") from error


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Returns name → tensor of a `.safetensors` file or of a file written by `torch.save`.

    timm looks inside `state_dict` or `model` and removes the prefix of data parallelism; inside
    `model_state_dict`, and without the prefixes `model.` of Lightning's modules and `base_model.`
    of TSM's, names are read too. For the file of a whole embedder, such as `model.safetensors` of
    `dml.export`, the tensors of the backbone are returned. Only tensors are unpickled.

    Raises:
        UserError: the file is damaged, of another format, or holds no tensors or more than tensors.
    """
    from timm.models import load_state_dict  # imported late: small networks need no timm

    try:
        state = load_state_dict(str(path))
    except Exception as error:  # of many classes, by format
        raise UserError(f"backbone.weights: {path} {_describe_unreadable(path)}") from error
    if isinstance(state.get("model_state_dict"), dict):
        state = state["model_state_dict"]
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    if not tensors:
        names = ", ".join(map(str, list(state)[:5])) or "nothing"
        raise UserError(
            f"backbone.weights: {path} holds no tensors by name, but {names}; expected is a state "
            f"dict, alone or as state_dict, model or model_state_dict"
        )
    for prefix in (BACKBONE, LIGHTNING, TEMPORAL):
        of_network = {}
        for name, value in tensors.items():
            if name.startswith(prefix):
                of_network[name.removeprefix(prefix)] = value
        tensors = of_network or tensors
    return tensors


def _describe_unreadable(path: Path) -> str:
    """Returns why a file cannot be read: what it holds beside tensors, or that it is damaged."""
    with suppress(Exception):  # of many classes, by format
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        if names:
            return (
                f"also holds {', '.join(sorted(names)[:3])}, and only tensors are unpickled; if "
                f"you trust it, write its tensors alone: torch.save(torch.load('{path}', "
                f"weights_only=False)['state_dict'], 'weights.pt'), or .state_dict() of a network"
            )
    if path.suffix == ".npz":
        return "is an .npz file, which only some networks of timm read: backbone=timm, vit_*"
    return "cannot be read: damaged, or neither a state dict of torch.save nor .safetensors"
