"""Type and range of an option of the typed config, in words."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

_LIMITS = {
    annotated_types.Ge: ("ge", "≥"),
    annotated_types.Gt: ("gt", ">"),
    annotated_types.Le: ("le", "≤"),
    annotated_types.Lt: ("lt", "<"),
}
_TYPES = {
    int: "integer",
    float: "number",
    bool: "true or false",
    str: "text",
    dict: "options",
    type(None): "null",
}


def list_fields(model: type[BaseModel]) -> dict[str, Any]:
    """Returns the annotation of each option of a node, by the name it has in the config."""
    hints = get_type_hints(model, include_extras=True)
    return {field.alias or name: hints[name] for name, field in model.model_fields.items()}


def describe_option(annotation: Any) -> str:
    """Returns `integer ≥ 1`, `fp32 | bf16`, or `number > 0 or null`; empty if it is a node."""
    if get_origin(annotation) is Annotated:
        kind, *metadata = get_args(annotation)
        return f"{_describe_kind(kind)} {', '.join(_list_limits(metadata))}".strip()
    return _describe_kind(annotation)


def _describe_kind(kind: Any) -> str:
    """Returns the type in words, without a range."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(filter(None, map(describe_option, get_args(kind))))
    if origin is Literal:
        return " | ".join(get_args(kind))
    if origin is list:
        item = describe_option(get_args(kind)[0])
        plural = "s" if item in ("number", "text") else ""
        return f"list of {item}{plural}"
    return _TYPES.get(origin or kind, "")


def _list_limits(metadata: Sequence[Any]) -> Iterator[str]:
    """Yields `≥ 1` and the like."""
    for entry in metadata:
        if isinstance(entry, FieldInfo):
            yield from _list_limits(entry.metadata)
            continue
        for limit, (attribute, sign) in _LIMITS.items():
            if isinstance(entry, limit):
                yield f"{sign} {_write_number(getattr(entry, attribute))}"


def _write_number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value:g}"
