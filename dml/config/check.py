"""The check of a composed config: every problem at once, one line each.

Types are in `schema.py`, ranges in `ranges.py`, options that exclude each other in
`compatibility.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import is_dataclass, make_dataclass
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dml.config import search_space
from dml.config.compatibility import fits
from dml.config.identity import flattened
from dml.config.ranges import ranges
from dml.config.schema import Config, SearchConfig, in_words, shown
from dml.core.errors import ConfigError, nearest

C = TypeVar("C", bound=Config)


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
            problems.update(search_space.problems(config.space, flattened(plain)))
    if problems:
        raise ConfigError(f"{name}: {problem}" for name, problem in problems.items())
    return config


def _unresolved(cfg: DictConfig) -> Iterator[str]:
    """Options that refer to others which are not there."""
    for name, value in flattened(OmegaConf.to_container(cfg, resolve=False)).items():
        try:
            if isinstance(value, str) and "${" in value:
                OmegaConf.select(cfg, name, throw_on_resolution_failure=True)
        except OmegaConfBaseException as error:
            yield f"{name}: '{value}' refers to what is not there: {str(error).splitlines()[0]}"


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
