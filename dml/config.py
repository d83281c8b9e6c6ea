"""The config: every problem at once, what identifies a run, and the digest that names its folder.

The typed nodes are in `config_nodes.py`, the checks beyond types in `config_ranges.py`
and `config_fits.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import is_dataclass, make_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dml import search_space
from dml.config_fits import fits
from dml.config_nodes import Config, EvaluateConfig, SearchConfig, in_words, shown
from dml.config_ranges import ranges
from dml.errors import ConfigError, nearest

__all__ = ["Config", "EvaluateConfig", "SearchConfig", "check", "digest", "identity", "notes"]

C = TypeVar("C", bound=Config)

CONFIGS = Path(__file__).resolve().parent.parent / "configs"

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
LOSS_KEYS = ("name", "result_id", "batch_kind", "miner")  # the rest goes to the constructor
METHOD_KEYS = ("result_id",)


def check(cfg: DictConfig, schema: type[C]) -> C:
    """The typed config of a composed one.

    Args:
        cfg: as Hydra composed it.
        schema: `Config`, or a class that adds options to it.

    Raises:
        ConfigError: with every problem, one line each, before data or GPU are touched.
    """
    problems: dict[str, str] = {}
    try:
        plain = OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(_unresolved(cfg)) from error
    config = _typed(schema, plain, "", problems)
    # An option of the wrong type is None from here on, which the checks of ranges pass over.
    for name, problem in ranges(config):
        problems.setdefault(name, problem)
    if not problems:
        problems.update(fits(config))
        if config.search is not None:
            problems.update(search_space.problems(config.space, _flat(plain)))
    if problems:
        raise ConfigError(f"{name}: {problem}" for name, problem in problems.items())
    return config


def _unresolved(cfg: DictConfig) -> Iterator[str]:
    """Options that refer to others which are not there."""
    for name, value in _flat(OmegaConf.to_container(cfg, resolve=False)).items():
        try:
            if isinstance(value, str) and "${" in value:
                OmegaConf.select(cfg, name, throw_on_resolution_failure=True)
        except OmegaConfBaseException as error:
            yield f"{name}: '{value}' refers to what is not there: {str(error).splitlines()[0]}"


def notes(config: Config) -> Iterator[str]:
    """What is allowed but worth knowing before a number is compared."""
    side, t, data = config.data.cache, config.transform, config.data
    if data.sampler == "random" and data.images_per_class is not None:
        yield (
            f"data.images_per_class={data.images_per_class} has no effect with "
            f"data.sampler=random; data.sampler=balanced draws so many of each class"
        )
    if isinstance(side, int) and t.resize != side:
        yield (
            f"data.cache={side} keeps small images, so training crops differ from those of the "
            f"protocol, which cuts them from images "
            f"{'as decoded' if t.resize is None else f'resized to {t.resize}'}"
        )
    ran = config.protocol.lookup.get("backbones")
    if ran and not config.data.stand_in and config.backbone["name"] not in ran:
        yield (
            f"protocol={config.protocol.name} was published with {', '.join(ran)}; there is no "
            f"printed number for backbone={config.backbone['name']}"
        )
    if isinstance(side, int) and t.test_resize is not None and t.test_resize > side:
        yield f"data.cache={side} is smaller than transform.test_resize={t.test_resize}"


def identity(cfg: DictConfig) -> dict[str, Any]:
    """Everything that decides the result, as dotted name → plain value, sorted by name."""
    flat = _flat(OmegaConf.to_container(cfg, resolve=True))
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


def _flat(node: Any, path: str = "") -> dict[str, Any]:
    if not (isinstance(node, dict) and node):
        return {path: node}
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat.update(_flat(value, f"{path}.{key}" if path else str(key)))
    return flat


def digest(cfg: DictConfig) -> str:
    """Eight hex digits that depend on everything that decides the result."""
    return hashlib.sha256(json.dumps(identity(cfg)).encode()).hexdigest()[:8]


def arguments(node: dict[str, Any], *reserved: str) -> dict[str, Any]:
    """The node without the keys that are about it rather than for its constructor."""
    return {key: value for key, value in node.items() if key not in (*reserved, "name")}


def _typed(schema: type, node: Any, path: str, problems: dict[str, str]) -> Any:
    """An instance of `schema` with the node's values, each converted to its declared type."""
    hints = get_type_hints(schema)
    values: dict[str, Any] = {}
    for name, kind in hints.items():
        dotted = f"{path}{name}"
        value = node.get(name) if isinstance(node, dict) else None
        if kind == SearchConfig | None:
            kind = None if isinstance(node, dict) and value is None else SearchConfig
        if kind is None:
            values[name] = None
            continue
        if is_dataclass(kind):
            told: dict[str, str] = {}
            values[name] = _typed(cast(type, kind), value, f"{dotted}.", told)
            if isinstance(value, dict) or value is None:
                problems.update(told)
            else:  # not a line for each of its options
                problems[dotted] = f"{shown(value)} must be {in_words(dict)}"
            continue
        try:
            if not isinstance(node, dict) or name not in node:
                values[name] = None
                problems[dotted] = "missing; give it a value"
            else:
                values[name] = _converted(value, kind)
        except OmegaConfBaseException:
            values[name] = None
            problems[dotted] = f"{shown(value)} must be {in_words(kind)}"
    for key in node if isinstance(node, dict) else ():
        if key not in hints:
            valid = [f"{path}{name}" for name in hints]
            problems[f"{path}{key}"] = f"no such option{nearest(f'{path}{key}', valid)}"
    return schema(**values)


def _converted(value: Any, kind: Any) -> Any:
    """`value` as `kind` by OmegaConf's rules: "3" becomes the integer 3, 3.5 is refused."""
    holder = OmegaConf.structured(_holder(kind))
    holder.value = value
    return cast(dict[str, Any], OmegaConf.to_container(holder, throw_on_missing=True))["value"]


@cache
def _holder(kind: Any) -> type:
    return make_dataclass("Holder", [("value", kind, MISSING)])
