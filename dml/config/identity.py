"""Identity of a run: the options that decide its result, and the digest in its folder name."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dml.config.fields import PAPERS_CROP, resolve_test_resize
from dml.config.flatten import flatten
from dml.config.names import former_names
from dml.config.versions import REMOVED, as_in_older_runs

# Options that do not change the result: device, speed, place and presentation of a run.
NOT_IN_DIGEST = (
    "name",
    "note",
    "experiment",
    "tracking",
    "device",
    "channels_last",
    "compile",
    "outputs",
    "overwrite",
    "max_minutes",
    "data.workers",
    *REMOVED,  # none of them ever changed it
    "evaluation.backend",
    "evaluation.keep_embeddings",
    "protocol.workers",
    "search.storage",
    "search.lease_seconds",
)
# Nor does the folder of a dataset that its name identifies (`data.identified_by: name`).
ROOTS = ("data.root", "data.reader.root")


def identity(cfg: DictConfig) -> dict[str, Any]:
    """Returns the options that decide the result: dotted name → plain value, sorted by name."""
    return deciding_options(OmegaConf.to_container(cfg, resolve=True))


def deciding_options(cfg: Any) -> dict[str, Any]:
    """Returns `identity` of a resolved config of plain nested dictionaries."""
    options = as_in_older_runs(flatten(cfg))
    options |= former_names(options)
    if options.get("optim.schedule") == "none":
        options["optim.schedule"] = None
    size = options.get("transform.size") or options.get("backbone.input_size")
    if "transform.test_resize" in options:  # auto counts as the number that it stands for
        share = options.get("backbone.crop_share", PAPERS_CROP)
        resize = resolve_test_resize(options["transform.test_resize"], size, share)
        options["transform.test_resize"] = resize
    unused: tuple[str, ...] = () if cfg.get("search") else ("space",)
    if _is_cache_exact(options):
        unused += ("data.cache",)
    weights = options.get("backbone.weights")
    if isinstance(weights, str) and (file := Path(weights).expanduser()).is_file():
        options["backbone.weights"] = f"file with sha256 {_hash_file(file, *_size_and_time(file))}"
    if options.get("data.identified_by") == "name":
        unused += ROOTS
    else:  # the same from whatever folder the command is started
        roots = {root: options[root] for root in ROOTS if options.get(root)}
        options |= {root: str(Path(folder).absolute()) for root, folder in roots.items()}
    if not options.get("evaluation.measures"):
        unused += ("evaluation.measures",)
    left_out = tuple(f"{name}." for name in (*NOT_IN_DIGEST, *unused))
    return {name: options[name] for name in sorted(options) if not f"{name}.".startswith(left_out)}


def digest(cfg: DictConfig) -> str:
    """Returns eight hex digits that depend on everything that decides the result."""
    return hashlib.sha256(json.dumps(identity(cfg)).encode()).hexdigest()[:8]


def _is_cache_exact(options: dict[str, Any]) -> bool:
    """Returns True if crops from the cache equal crops from the files, or there is no cache."""
    side = options.get("data.cache")
    sizes = {options.get("transform.resize"), options.get("transform.test_resize")}
    return side in (None, "full") or sizes == {side}


def _size_and_time(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


@cache
def _hash_file(file: Path, size: int, time: int) -> str:
    """Hash of the content; size and time only make the cache forget a file that was replaced."""
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:16]
