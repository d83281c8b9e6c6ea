"""Types and values in the words of error messages."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

_NAMES = {  # singular, plural
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false values"),
    str: ("text", "texts"),
    Path: ("text", "texts"),
    dict: ("a node of options", "nodes of options"),
    list: ("a list", "lists"),
    type(None): ("null", "null"),
}


def describe_type(kind: Any, plural: bool = False) -> str:
    """Returns a type in words, `a number or null`; empty if no message can name it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return describe_type(arguments[0], plural)
    if origin in (Union, types.UnionType):
        words = [describe_type(one, plural) for one in arguments]
        return " or ".join(word for word in dict.fromkeys(words) if word)
    if origin is Literal:
        return "one of " + " | ".join(map(str, arguments))
    if origin in (list, tuple) or kind is tuple:
        items = describe_type(arguments[0], plural=True) if arguments else ""
        return _NAMES[list][plural] + (f" of {items}" if items else "")
    return _NAMES.get(origin or kind, ("", ""))[plural]


def describe_value(value: object) -> str:
    """Returns a value as the user wrote it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else str(value)
