"""Type and range of an option of the typed config, in words."""

from __future__ import annotations

import itertools
import types
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
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(filter(None, map(describe_option, get_args(annotation))))
    kind, *extras = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    fields = (one.metadata if isinstance(one, FieldInfo) else [one] for one in extras)
    if get_origin(kind) is Literal:
        return " | ".join(get_args(kind))
    if get_origin(kind) is list:
        item = describe_option(get_args(kind)[0])
        return f"list of {item}s" if item in ("number", "text") else f"list of {item}"
    if get_origin(kind) in (Union, types.UnionType):
        return describe_option(kind)
    limits = [
        f"{sign} {_write_number(getattr(one, attribute))}"
        for one in itertools.chain.from_iterable(fields)
        for limit, (attribute, sign) in _LIMITS.items()
        if isinstance(one, limit)
    ]
    return f"{_TYPES.get(get_origin(kind) or kind, '')} {', '.join(limits)}".strip()


def _write_number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"
