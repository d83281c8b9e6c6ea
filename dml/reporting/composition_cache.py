"""What Hydra has composed before, remembered between processes.

Composing the configs of all experiments takes minutes, and a report or a plan of them needs every
one. They follow from the files of `configs/` alone, so they are kept in the user's cache folder
under a digest of those files and of the module that composes them: a change forgets everything.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dml.config.config_groups import CONFIGS
from dml.core.atomic_io import write_text

KEPT = 4  # digests: of a few checkouts, or of a few edits back


def remembered(words: Sequence[str], make: Callable[[], Any]) -> Any:
    """What `make` returned for these words before, or returns now.

    Args:
        words: everything beside the files of `configs/` that the result depends on.
        make: returns JSON's own types, keys of mappings being text.
    """
    known, key = _known(), "\n".join(words)
    if key not in known:
        known[key] = make()
        _unsaved().add(key)
    return known[key]


def folder() -> Path:
    """Where they are kept: `$XDG_CACHE_HOME/dml-benchmark`, which may be deleted at any time."""
    place = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(place) / "dml-benchmark" / "configs"


@cache
def _path() -> Path:
    found = sha256("\n".join(version(name) for name in ("hydra-core", "omegaconf")).encode())
    found.update(Path(__file__).with_name("catalog.py").read_bytes())  # which composes them
    for path in sorted(CONFIGS.rglob("*.yaml")):
        found.update(f"\n{path.relative_to(CONFIGS)}\n".encode())
        found.update(path.read_bytes())
    return folder() / f"{found.hexdigest()[:16]}.json"


@cache
def _known() -> dict[str, Any]:
    atexit.register(_save)
    return _read()


@cache
def _unsaved() -> set[str]:
    return set()


def _read() -> dict[str, Any]:
    """Those of the file; none if there is none or it is damaged, since they can be made again."""
    try:
        found = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _save() -> None:
    """Adds the new ones to the file, with those that other processes have added meanwhile."""
    if not _unsaved():
        return
    with suppress(OSError):  # a home that cannot be written costs time, nothing else
        own = {key: _known()[key] for key in _unsaved()}
        write_text(_path(), json.dumps({**_read(), **own}))
        for old in sorted(folder().glob("*.json"), key=_age)[KEPT:]:
            old.unlink(missing_ok=True)
    _unsaved().clear()


def _age(path: Path) -> float:
    with suppress(OSError):
        return -path.stat().st_mtime
    return 0.0
