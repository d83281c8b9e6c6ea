"""The check of a composed config: every problem at once, one line each.

Types and ranges are in `schema.py`, options that exclude each other in `compatibility.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar, get_args, get_origin

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dml.config import search_space
from dml.config.compatibility import find_conflicts
from dml.config.descriptions import describe_type, describe_value
from dml.config.fields import PROBLEM
from dml.config.flatten import flatten
from dml.config.schema import Config
from dml.core.errors import ConfigError, nearest

C = TypeVar("C", bound=Config)

LIMITS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}


def check(cfg: DictConfig, schema: type[C]) -> C:
    """Returns the typed config of a composed one.

    Args:
        cfg: as Hydra composed it.
        schema: `Config`, or a class that adds options to it.

    Raises:
        ConfigError: with every problem, one line each, before data or GPU are touched.
    """
    options = flatten(OmegaConf.to_container(cfg, resolve=False))
    # Before references are resolved: those to a missing value cannot be.
    if unset := [name for name, value in options.items() if value == "???"]:
        raise ConfigError(_describe_missing(name) for name in unset)
    try:
        plain: Any = OmegaConf.to_container(cfg, resolve=True)
    except OmegaConfBaseException as error:
        raise _find_reason(error) or ConfigError(_find_broken_references(cfg)) from error
    options = flatten(plain)
    try:
        config = schema.model_validate(plain)
    except ValidationError as error:
        problems = {_dotted(one["loc"]): _describe(one, schema) for one in error.errors()}
    else:
        problems = dict(find_conflicts(config))
        if config.search is not None:
            problems.update(search_space.find_problems(config.space, options))
    if problems:
        raise ConfigError(f"{name}: {problem}" for name, problem in problems.items())
    return config


def _find_reason(error: BaseException | None) -> ConfigError | None:
    """Returns the error of a resolver, which OmegaConf wraps several times; None for others."""
    seen: set[int] = set()  # a chain of causes can be a cycle
    while error is not None and not isinstance(error, ConfigError) and id(error) not in seen:
        seen.add(id(error))
        error = error.__context__
    return error if isinstance(error, ConfigError) else None


def _describe_missing(name: str) -> str:
    value = "<module>.<class>" if name.endswith("._target_") else "<value>"
    return f"{name}: missing; write {name}={value}"


def _find_broken_references(cfg: DictConfig) -> Iterator[str]:
    """Yields a line for each option whose reference cannot be resolved."""
    for name, value in flatten(OmegaConf.to_container(cfg, resolve=False)).items():
        try:
            if isinstance(value, str) and "${" in value:
                OmegaConf.select(cfg, name, throw_on_resolution_failure=True)
        except OmegaConfBaseException as error:
            yield f"{name}: '{value}' cannot be resolved: {str(error).splitlines()[0]}"


def _dotted(location: tuple[int | str, ...]) -> str:
    """`("transform", "scale", 0)` as `transform.scale[0]`."""
    words = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(words).removeprefix(".")


def _describe(error: ErrorDetails, schema: type[BaseModel]) -> str:
    """One problem that pydantic found, in the words of the other messages."""
    kind, location, value = error["type"], error["loc"], describe_value(error["input"])
    if kind == PROBLEM:
        return error["msg"]
    if kind == "missing":
        return "missing; give it a value"
    if kind == "extra_forbidden":
        node = _type_at(schema, location[:-1])
        valid = [_dotted((*location[:-1], name)) for name in _options(node)]
        return f"no such option{nearest(_dotted(location), valid)}"
    if kind in LIMITS:
        words, key = LIMITS[kind]
        return f"{value} must be {words} {error['ctx'][key]:.10g}"
    if kind == "finite_number":
        return f"{value} must be a finite number"
    if kind in ("model_type", "dict_type"):
        return f"{value} must be {describe_type(dict)}"
    return f"{value} must be {describe_type(_type_at(schema, location))}"


def _options(node: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in node.model_fields.items()]


def _type_at(schema: type[BaseModel], location: tuple[int | str, ...]) -> Any:
    """The type that the schema declares at a location; None below a node that it does not type."""
    kind: Any = schema
    for part in location:
        alternatives = [kind, *get_args(kind)]  # of `Node | None`, `list[float] | None`
        if isinstance(part, int):
            lists = [one for one in alternatives if get_origin(one) is list]
            kind = get_args(lists[0])[0]
            continue
        nodes = [
            one for one in alternatives if isinstance(one, type) and issubclass(one, BaseModel)
        ]
        if not nodes:
            return None
        fields = nodes[0].model_fields.values()
        kind = next(
            field.annotation
            for name, field in zip(_options(nodes[0]), fields, strict=True)
            if name == part
        )
    return kind
