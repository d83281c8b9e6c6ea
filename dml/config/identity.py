"""Identity of a run: the options that decide its result, and the digest in its folder name."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

# Where and how fast a run is computed and how it is shown, not what: not in the digest.
NOT_IN_DIGEST = (
    "experiment",
    "tracking",
    "device",
    "channels_last",
    "compile",
    "outputs",
    "overwrite",
    "max_minutes",
    "data.workers",
    "data.cache_device",
    "evaluation.keep_embeddings",
    "protocol.workers",
    "search.storage",
    "search.lease_seconds",
)
# Nor does the place of a dataset whose name says what is in it (`data.identified_by: name`).
ROOTS = ("data.root", "data.reader.root")


def identity(cfg: DictConfig) -> dict[str, Any]:
    """Everything that decides the result, as dotted name → plain value, sorted by name."""
    flat = flattened(OmegaConf.to_container(cfg, resolve=True))
    unused: tuple[str, ...] = () if cfg.get("search") else ("space",)
    if _cache_is_exact(flat):
        unused += ("data.cache",)
    weights = flat.get("backbone.weights")
    if isinstance(weights, str) and (file := Path(weights).expanduser()).is_file():
        flat["backbone.weights"] = f"file with sha256 {_sha256(file, *_stamp(file))}"
    if flat.get("data.identified_by") == "name":
        unused += ROOTS
    else:  # from whatever folder the command is typed
        flat.update({root: str(Path(flat[root]).absolute()) for root in ROOTS if flat.get(root)})
    if not flat.get("evaluation.measures"):
        unused += ("evaluation.measures",)
    left_out = tuple(f"{name}." for name in (*NOT_IN_DIGEST, *unused))
    return {name: flat[name] for name in sorted(flat) if not f"{name}.".startswith(left_out)}


def _cache_is_exact(flat: dict[str, Any]) -> bool:
    """Whether crops come out of the cache as they come out of the files (or there is no cache)."""
    side = flat.get("data.cache")
    sizes = {flat.get("transform.resize"), flat.get("transform.test_resize")}
    return side in (None, "full") or sizes == {side}


def _stamp(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


@cache
def _sha256(file: Path, size: int, time: int) -> str:
    """Of the content: weights that were trained further under the same name are others."""
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:16]


def digest(cfg: DictConfig) -> str:
    """Eight hex digits that depend on everything that decides the result."""
    return hashlib.sha256(json.dumps(identity(cfg)).encode()).hexdigest()[:8]


def flattened(node: Any, path: str = "") -> dict[str, Any]:
    """Dotted name → value of a nested mapping; an empty mapping is a value."""
    if not (isinstance(node, dict) and node):
        return {path: node}
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat.update(flattened(value, f"{path}.{key}" if path else str(key)))
    return flat
