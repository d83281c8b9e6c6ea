"""Cache of composed configs in the user's cache folder.

Composing the configs of all experiments takes minutes, and a report or a plan needs every one of
them. They depend on the files of `configs/` and on Hydra alone, so each is kept as a JSON file in a
folder named by a digest of both: after a change of any config file, everything is composed anew.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dml.core.atomic_io import write_text
from dml.core.installation import CONFIGS

FORMAT = 1  # of the stored values: increase it when the catalog stores something else
FOLDERS_KEPT = 4  # digests of a few checkouts, or of the last few edits


def load_or_compute(words: Sequence[str], compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Returns the cached value for some words, computed and stored if it is not there.

    Args:
        words: everything beside the files of `configs/` that the value depends on.
        compute: returns a mapping of JSON's own types, with strings as keys.
    """
    key = sha256("\n".join(words).encode()).hexdigest()[:32]
    path = _folder() / f"{key}.json"
    with suppress(OSError, ValueError):
        value = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(value, dict):
            return value
    value = compute()
    with suppress(OSError):  # a home that cannot be written to costs time, nothing else
        write_text(path, json.dumps(value))
    return value


def cache_folder() -> Path:
    """Returns `$XDG_CACHE_HOME/dml-benchmark/compositions`, which may be deleted at any time."""
    place = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(place) / "dml-benchmark" / "compositions"


@cache
def _folder() -> Path:
    """Returns the folder for the present config files; the oldest of the others are deleted."""
    digest = sha256(str(FORMAT).encode())
    for name in ("hydra-core", "omegaconf"):
        digest.update(f"\n{name} {version(name)}".encode())
    for path in sorted(CONFIGS.rglob("*.yaml")):
        digest.update(f"\n{path.relative_to(CONFIGS)}\n".encode())
        digest.update(path.read_bytes())
    folder = cache_folder() / digest.hexdigest()[:16]
    with suppress(OSError):
        others = [path for path in cache_folder().iterdir() if path != folder]
        others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for old in others[FOLDERS_KEPT - 1 :]:
            shutil.rmtree(old, ignore_errors=True)
    return folder
