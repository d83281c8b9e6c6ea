"""Options of a composed config that are set by their dotted names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dml.core.errors import ConfigError


def is_below(name: str, nodes: Iterable[str]) -> bool:
    """Returns whether a dotted name is one of several nodes, or lies below one."""
    return any(f"{name}.".startswith(f"{node}.") for node in nodes)


def set_option(cfg: DictConfig, name: str, value: Any) -> None:
    """Sets an option; entries of a mapping are added to its own, as by `name={…}` when typed.

    Args:
        cfg: the composed config.
        name: dotted name.
        value: plain value.

    Raises:
        OmegaConfBaseException: there is no such option.
    """
    adds_entries = isinstance(value, Mapping) and OmegaConf.is_dict(OmegaConf.select(cfg, name))
    OmegaConf.update(cfg, name, value, force_add=adds_entries)


def with_options(stored: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns stored options with other values of dotted ones; see `set_option`."""
    cfg = OmegaConf.create(dict(stored))
    for name, value in values.items():
        set_option(cfg, name, value)
    plain: Any = OmegaConf.to_container(cfg)
    return plain


def merge_words(stored: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Returns stored options with those of `name=value` words.

    Raises:
        ConfigError: the value of a word cannot be read; it is not shown, since it may be a key.
    """
    merged: Any = dict(stored)
    for word in words:
        name, _, _ = word.partition("=")
        try:
            cfg = OmegaConf.merge(OmegaConf.create(merged), OmegaConf.from_dotlist([word]))
            merged = OmegaConf.to_container(cfg, resolve=True)
        except Exception as error:  # of YAML, OmegaConf or Python: `{`, `${x}`, `&a [*a]`
            problem = f"{name}: its value cannot be read; put it in quotes: '{name}=\"…\"'"
            raise ConfigError([problem]) from error
    return dict(merged)


def get_option(options: Mapping[str, Any], name: str) -> Any:
    """Returns the value of a dotted option in nested mappings."""
    node: Any = options
    for part in name.split("."):
        node = node[part]
    return node


def format_override(name: str, value: Any) -> str:
    """Returns `name=value` as it is typed; `++` lets a mapping have new entries."""
    prefix = "++" if isinstance(value, Mapping) else ""
    return f"{prefix}{name}={format_value(value)}"


def format_value(value: Any) -> str:
    """Returns a plain value as it is typed on the command line; Hydra takes no quoted keys."""
    if isinstance(value, Mapping):
        entries = [f"{key}:{format_value(entry)}" for key, entry in value.items()]
        return "{" + ",".join(entries) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(format_value, value)) + "]"
    return json.dumps(value)
