"""Options of runs as texts: those that differ, their values, and short names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


def differing_options(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the sorted names of the options that are not equal in all mappings."""
    names = sorted(set().union(*options)) if options else []
    return [
        name
        for name in names
        if any(one.get(name, "") != options[0].get(name, "") for one in options)
    ]


def format_option(value: Any) -> str:
    """Returns an option's value as it is typed on the command line."""
    if isinstance(value, list):
        return f"[{','.join(map(format_option, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    return f"{value:g}" if isinstance(value, float) else str(value)


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Returns dotted name → its last part, or as many parts as make it unique; in order."""
    last = Counter(name.rpartition(".")[2] for name in names)
    return {name: leaf if last[leaf := name.rpartition(".")[2]] == 1 else name for name in names}
