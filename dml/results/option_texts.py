"""Options of runs as texts: those that differ, their values, and short names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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


def short_names(names: Sequence[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Returns dotted name → its last part, or all of it if that is not unique; in order.

    Args:
        names: the dotted names.
        taken: short names that mean something else.
    """
    last = Counter([*(name.rpartition(".")[2] for name in names), *taken])
    return {name: leaf if last[leaf := name.rpartition(".")[2]] == 1 else name for name in names}
