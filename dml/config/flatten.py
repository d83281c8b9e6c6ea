"""Dotted names of nested options."""

from __future__ import annotations

from typing import Any


def flatten(node: Any, path: str = "") -> dict[str, Any]:
    """Returns dotted name → value of a nested mapping; an empty mapping is a value."""
    if not (isinstance(node, dict) and node):
        return {path: node}
    options: dict[str, Any] = {}
    for key, value in node.items():
        options.update(flatten(value, f"{path}.{key}" if path else str(key)))
    return options
