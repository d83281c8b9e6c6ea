"""Options of a composed config that are set by their dotted names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf


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


def format_override(name: str, value: Any) -> str:
    """Returns `name=value` as it is typed; `++` lets a mapping have new entries."""
    adds = "++" if isinstance(value, Mapping) else ""
    return f"{adds}{name}={format_value(value)}"


def format_value(value: Any) -> str:
    """Returns a plain value as it is typed on the command line; Hydra takes no quoted keys."""
    if isinstance(value, Mapping):
        entries = [f"{key}:{format_value(entry)}" for key, entry in value.items()]
        return "{" + ",".join(entries) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(format_value, value)) + "]"
    return json.dumps(value)
