"""What a search varies: ranges by dotted option, collected and checked.

`space.loss` and `space.method` come from `configs/space/<name>.yaml` (flat dotted keys),
`space.own` from the command line; later ones win, null takes a range out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dml.core.errors import nearest

PARTS = ("loss", "method", "own")  # later ones win
KEYS = {"low", "high", "log", "int", "step", "choices"}


def merged(space: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Option → range, sorted by option: of the loss, over that of the method, over the user's."""
    found: dict[str, Any] = {}
    for part in PARTS:
        found.update(_flat(space.get(part) or {}, ""))
    return {name: found[name] for name in sorted(found) if found[name] is not None}


def problems(space: dict[str, Any], options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with a space, as (option, problem).

    Args:
        space: the node `space`.
        options: dotted option → value of the whole config.
    """
    for part in PARTS:
        if not isinstance(space.get(part) or {}, dict):
            again = f"+space.{part}.<option>={{low: 0, high: 1}}"
            yield f"space.{part}", f"'{space[part]}' gives no ranges; write {again}"
            return
    ranges = merged(space)
    if not ranges:
        loss = options.get("loss.name")
        yield (
            "search",
            f"nothing to search: loss '{loss}' and its method have no ranges; write "
            f"configs/space/{loss}.yaml, or give one as "
            f"+space.own.optim.loss_lr='{{low:1e-6,high:1,log:true}}'",
        )
    for name, entry in ranges.items():
        where = f"space of {name}"
        if name not in options:
            yield where, f"no such option{nearest(name, options)}"
        elif problem := _range_problem(entry):
            yield where, problem


def _flat(node: dict[str, Any], path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, dict) and not (value.keys() <= KEYS and value):
            found.update(_flat(value, f"{path}{key}."))
        else:
            found[f"{path}{key}"] = value
    return found


def _range_problem(entry: Any) -> str:
    """Why an entry is no range; empty if it is one."""
    if not isinstance(entry, dict):
        return f"'{entry}' is no range; write {{low: 0, high: 1}} or {{choices: [a, b]}}"
    if "choices" in entry:
        good = isinstance(entry["choices"], list) and entry["choices"] and len(entry) == 1
        return "" if good else "choices must be a list, alone"
    low, high = entry.get("low"), entry.get("high")
    if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in (low, high)):
        return "low and high must be numbers"
    if not low < high:  # type: ignore[operator]
        return f"low {low} is not below high {high}"
    if entry.get("log") and low <= 0:  # type: ignore[operator]
        return f"a logarithmic range cannot begin at {low}"
    if entry.get("int") and (low != int(low) or high != int(high)):  # type: ignore[arg-type]
        return "low and high of an int range must be integers"
    return ""
