"""Where the weights of timm's networks come from: the hub, or the address that timm's record names.

The order: the cache of the hub, the file of the second address if it was downloaded before, the
mirror (`DML_MIRROR`), the hub, the second address. What is there is used without a request.
"""

from __future__ import annotations

import os
from functools import cache, partial
from pathlib import Path
from typing import Any

from dml.core.download import MIRROR, Checksum, requests_allowed, with_mirror
from dml.core.errors import UserError, first_line
from dml.core.hub import HubError, find_cached, find_hub_file, is_offline, measure_hub_file
from dml.core.installation import shell_command
from dml.core.plain_text import print_plain
from dml.core.timm_records import find_record
from dml.models.weights import (
    DIGITS,
    WeightFile,
    describe_address,
    download_weights,
    downloaded_path,
    find_weights,
    published_name,
)

FILES = "pytorch_model.bin"  # unless a record names another file
# Files of second addresses whose size and checksum are published, by name.
CHECKSUMS = {
    "resnet50-0676ba61.pth": Checksum(
        "sha256", "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a", 102_530_333
    ),
}
HUBS_CHECKSUM = "compared with the sha256 that the hub announces"
NOT_COMPARED = "whether its values equal the hub's bit for bit has not been checked"


def find_timm_weights(model: str) -> tuple[Path, bool]:
    """Returns the file of the weights that timm's record names, and whether it is the hub's.

    Args:
        model: timm's name, or `hf-hub:user/name`.

    Raises:
        UserError: there are no such weights, or no address has them.
    """
    record = find_record(model)
    hub, second = record.get("hf_hub_id"), record.get("url")
    if not hub:
        if not second:
            raise UserError(
                f"backbone.weights=imagenet: timm has no weights of {model}; use "
                f"backbone.weights=none"
            )
        return find_weights(second, CHECKSUMS.get(published_name(second))), False
    names = hub_names(record)
    cached = find_cached(hub, names)
    if cached is not None:
        return cached, True
    kept = _find_second(second)
    if kept is not None:
        return kept, False
    try:
        return find_hub_file(hub, names), True
    except OSError as error:
        raise UserError(
            f"backbone.weights: cannot write to the cache of the hub ({first_line(error)}); let "
            f"its owner run {shell_command('prepare')}, or set HF_HOME=<folder that you can write "
            f"to>"
        ) from error
    except HubError as error:
        return _take_second(second, error), False


def describe_timm_weights(model: str) -> WeightFile:
    """Returns the file that `find_timm_weights` would return; no server is asked.

    Args:
        model: timm's name, or `hf-hub:user/name`.
    """
    record = find_record(model)
    hub, second = record.get("hf_hub_id"), record.get("url")
    if not hub:
        return describe_address(second or model, CHECKSUMS.get(published_name(second or "")))
    names = hub_names(record)
    path = find_cached(hub, names)
    if path is None and second and downloaded_path(second).is_file():
        path = downloaded_path(second)
    sources = [f"{hub} of the hub (HF_HOME, HF_ENDPOINT), {HUBS_CHECKSUM}"]
    if second:
        sources += with_mirror(published_name(second), [_describe(second)])
    return WeightFile(f"{hub}/{names[0]}", path, sources, partial(measure_hub_file, hub, names))


def hub_names(record: dict[str, Any]) -> list[str]:
    """Returns the names that a network's weights may have on the hub, safetensors first."""
    name = record.get("hf_hub_filename") or FILES
    safe = name.replace("pytorch_model.bin", "model.safetensors").replace(".bin", ".safetensors")
    return list(dict.fromkeys([safe, name]))


def _find_second(second: str | None) -> Path | None:
    """Returns the file of a second address that is there already, or that the mirror has."""
    if not second:
        return None
    checksum = CHECKSUMS.get(published_name(second))
    if downloaded_path(second).is_file():
        path = download_weights(second, [], checksum)
        _say(f"{path.name}: {_describe(second)}")
        return path
    if not os.environ.get(MIRROR):
        return None
    try:
        path = download_weights(second, with_mirror(published_name(second), []), checksum)
    except UserError as error:
        _say(f"{first_line(error)}; asking the hub")
        return None
    _say(f"{path.name} of {MIRROR}: {_describe(second)}")
    return path


def _take_second(second: str | None, error: HubError) -> Path:
    """Downloads the weights from the second address, since the hub does not have them.

    Raises:
        UserError: there is no second address, the user forbids requests, or it fails too.
    """
    reason = f"backbone.weights=imagenet: {error}"
    name = published_name(second) if second else ""
    if not second or is_offline():
        advice = f"{_advise(name)}; backbone.weights=none starts from random weights"
        raise UserError(f"{reason}; {advice}") from error
    if requests_allowed():
        _say(f"{error.reason}; trying the second address: {_describe(second)}")
    try:
        return find_weights(second, CHECKSUMS.get(name))
    except UserError as failure:
        raise UserError(
            f"backbone.weights=imagenet: {error.reason}; "
            f"{str(failure).removeprefix('backbone.weights: ')}; {_advise(name)}"
        ) from error


def _describe(second: str) -> str:
    """Returns what is known of the file at a second address."""
    checksum = CHECKSUMS.get(published_name(second))
    known = "no checksum is published"
    if checksum is not None:
        known = checksum.describe()
    elif DIGITS.search(published_name(second)):
        known = "its name holds its checksum"
    return f"{second} ({known}), which timm's record names for the same weights; {NOT_COMPARED}"


def _advise(name: str) -> str:
    """Returns what to do where the hub cannot be reached; `name`: of the second file, or empty."""
    mirror = f", {MIRROR}=<folder with {name}>" if name else ""
    return (
        f"copy HF_HOME from a machine that has the weights, or set HF_ENDPOINT=<mirror of the "
        f"hub>{mirror} or backbone.weights=<file>"
    )


@cache  # weights are looked for before the images are read, and again when they are loaded
def _say(text: str) -> None:
    print_plain(text, flush=True)
