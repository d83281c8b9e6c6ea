"""The network that a file of embeddings names as its maker, `made_by`, and the options of it.

The file may be of somebody else: it is data. A fixed list of options with plain values is taken
from it, and a network of timm's registry or a run folder, which is opened by the rules of
`trust.py`. A digest in the same file would prove nothing: the stranger wrote both.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dml.config.options import is_below
from dml.core.errors import UserError
from dml.core.hub import find_cached
from dml.core.installation import CONFIGS

TIMM = "timm:"  # prefix of an off-the-shelf network
HUB = "hf:"  # prefix of an export on the Hugging Face hub
EXPORT = ("config.yaml", "model.safetensors")  # files that an export must have
REPOSITORY = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w-][\w./-]*)?", re.ASCII)
REGISTERED = re.compile(r"\w+(\.[\w-]+)*", re.ASCII)  # timm's name, with or without a tag
FOLDER = re.compile(r"(?!-)[^:$\x00-\x1f]+|[A-Za-z]:[\\/][^:$\x00-\x1f]*")  # a folder, no address
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"
_TEXT = r"[\w./#~@%+ -]*"
PLAIN = re.compile(rf"\[\s*{_NUMBER}(\s*,\s*{_NUMBER})*\s*\]|{_TEXT}|'{_TEXT}'|\"{_TEXT}\"")
# Options of a network or of its images, by which `dml.embed` makes other embeddings.
TAKEN = (
    "backbone.input_size", "backbone.mean", "backbone.std", "backbone.interpolation",
    "backbone.crop_share", "backbone.pooling", "backbone.weights",
    "embedder.size", "embedder.pooling", "embedder.token_pooling", "embedder.head",
    "embedder.hidden", "embedder.layer_norm", "embedder.init", "embedder.bias",
    "embedder.normalize", "transform.augmentation", "transform.size", "transform.resize",
    "transform.scale", "transform.ratio", "transform.flip", "transform.padding",
    "transform.degrees", "transform.test_resize", "precision", "speed", "channels_last",
    "data.background",
)  # fmt: skip
GROUPS = ("data", "protocol")  # whose choice, a shipped one, sets some of these
# Of the images that were embedded, or of the speed: without effect on other images.
LEFT_OUT = (
    "data.root", "data.reader", "data.exif_orientation", "data.classes", "data.query_gallery",
    "data.images_per_class_at_most", "data.skip_corrupt", "data.cache", "data.workers",
    "data.eval_batch_size", "data.max_pixels", "data.crop", "data.images",
    "device", "keep_memory", "compile", "seed",
)  # fmt: skip


class StoredNetwork(NamedTuple):
    """A network that a file names.

    Attributes:
        name: as for `dml.load`.
        options: those of `TAKEN` and `GROUPS`, as on the command line.
    """

    name: str
    options: list[str]


def parse_network(name: Any, options: Any, source: str, trust: bool = False) -> StoredNetwork:
    """Returns the network that a file names, with its options; nothing is opened or imported.

    Args:
        name: `timm:<name of timm's registry>`, a run folder, or `hf:<user>/<name>` of an export
            that the cache of the hub has.
        options: words of the command line.
        source: of both, for messages.
        trust: the user trusts the file: its network may be of a hub.

    Raises:
        UserError: the name or an option is none that a file may give.
    """
    is_text = isinstance(name, str) and bool(name)
    if not is_text or not isinstance(options, list | tuple):
        raise UserError(f"network: {source} names no network")
    allowed = _is_timm(name) or bool(FOLDER.fullmatch(name))
    allowed |= _is_cached(name)
    if not allowed and not (trust and name.startswith((TIMM, HUB))):
        raise UserError(
            f"network: {source} names {name!r}, which is neither timm:<model> of timm's own list "
            f"nor a run folder; nothing is fetched that a file names: if you trust it, add "
            f"--trust (trust=True in Python)"
        )
    words: list[str] = []
    for option in options:
        words += _select(option, source)
    return StoredNetwork(name, words)


def parse_line(line: str, source: str, trust: bool = False) -> StoredNetwork:
    """Returns the network of `backbone.network`: its name and its options in one line.

    Raises:
        UserError: see `parse_network`.
    """
    try:
        name, *options = shlex.split(line)
    except ValueError as error:  # no name, or a quote without its partner
        raise UserError(f"network: {source} names no network") from error
    return parse_network(name, options, source, trust)


def locate_network(name: str, file: str | Path) -> str:
    """Returns the name of a network as seen from the current folder.

    A file of embeddings names a run folder as it was typed: relative to a folder that is usually
    that of the file, or one above it. These are tried where there is none from here.

    Args:
        name: of `parse_network`.
        file: that names it.

    Raises:
        UserError: there is no such folder.
    """
    if name.startswith((TIMM, HUB)):
        return name
    # An absolute name stays what it is when it is joined.
    for folder in (Path(), *Path(os.path.realpath(file)).parents):
        located = os.path.join(folder, name)
        if os.path.isfile(os.path.join(located, EXPORT[0])):
            return located
    if os.path.isdir(name):
        return name  # what it lacks is said where it is read
    raise UserError(
        f"network: {file} was made by the network in {name}, which is not there"
        f"{_seen_from(name)}; put it back, or embed the images again by another network"
    )


def _seen_from(name: str) -> str:
    """Returns where a relative folder was looked for; empty for an absolute one."""
    if os.path.isabs(name):
        return ""
    return ", seen from the current folder, from that of the file, or from one above it"


def join_line(name: str, options: Sequence[str]) -> str:
    """Returns the line that `parse_line` reads."""
    return shlex.join([name, *options])


def _is_timm(name: str) -> bool:
    model = name.removeprefix(TIMM)
    return name.startswith(TIMM) and bool(REGISTERED.fullmatch(model))


def parse_hub_name(name: str) -> str:
    """Returns `user/name` or `user/name@revision` of a name that begins with `hf:`.

    Raises:
        UserError: it is not of this form.
    """
    model = name.removeprefix(HUB)
    if not REPOSITORY.fullmatch(model) or ".." in model:
        raise UserError(f"network: {name!r} is not of the form hf:<user>/<name>[@<revision>]")
    return model


def _is_cached(name: str) -> bool:
    """Returns whether an export of the hub was fetched before."""
    if not name.startswith(HUB):
        return False
    model = parse_hub_name(name)
    return all(find_cached(model, [file]) is not None for file in EXPORT)


def _select(option: Any, source: str) -> list[str]:
    """Returns a list of an option that is taken; empty for one without effect.

    Raises:
        UserError: the option is not on the list, or its value is not plain.
    """
    name, _, value = str(option).partition("=")
    if is_below(name, LEFT_OUT):
        return []
    if name in GROUPS and _is_shipped(name, value):
        return [f"{name}={value}"]
    if name in TAKEN and PLAIN.fullmatch(value):
        return [f"{name}={value}"]
    raise UserError(
        f"network: {source} sets {str(option)[:80]!r}, which is not taken from a file; embed the "
        f"images again, with options of your own"
    )


def _is_shipped(group: str, choice: str) -> bool:
    is_name = re.fullmatch(r"\w+", choice) is not None
    return is_name and (CONFIGS / group / f"{choice}.yaml").is_file()
