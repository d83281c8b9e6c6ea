"""The search space: ranges by dotted option, merged from three nodes and checked.

`space.loss` and `space.method` come from `configs/space/<name>.yaml` (flat dotted keys),
`space.own` from the command line; later ones win, null removes a range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from dml.core.errors import nearest

PARTS = ("loss", "method", "own")  # later ones win
KEYS = {"low", "high", "log", "int", "step", "choices"}


def merge_spaces(space: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns option → range, sorted by option; see `PARTS` for the order of precedence."""
    merged: dict[str, Any] = {}
    for part in PARTS:
        merged.update(_flatten_ranges(space.get(part) or {}, ""))
    return {name: merged[name] for name in sorted(merged) if merged[name] is not None}


def grid_size(space: Any) -> int:
    """Returns the number of combinations of all choices; ranges count as one."""
    plain: Any = (
        OmegaConf.to_container(space, resolve=True) if OmegaConf.is_config(space) else space
    )
    sizes: list[int] = [len(one.get("choices", "1")) for one in merge_spaces(plain).values()]
    return math.prod(sizes)


def find_problems(space: dict[str, Any], options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the problems of a space as (option, problem).

    Args:
        space: the node `space`.
        options: dotted option → value of the whole config.
    """
    for part in PARTS:
        if not isinstance(space.get(part) or {}, dict):
            example = f"+space.{part}.<option>={{low: 0, high: 1}}"
            yield f"space.{part}", f"'{space[part]}' is not a node of ranges; write {example}"
            return
    ranges = merge_spaces(space)
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
        elif problem := _find_range_problem(entry):
            yield where, problem
        elif options.get("search.sampler") == "grid" and "choices" not in entry:
            leave_out = f"or leave it out with '+space.own.{name}=null'"
            yield where, f"search=grid tries choices: {{choices: [a, b]}}, {leave_out}"
    if options.get("search.sampler") == "grid" and all("choices" in one for one in ranges.values()):
        trials, size = options["search.trials"], grid_size(space)
        if trials > size:
            yield "search.trials", f"{trials} is above the {size} combinations of the choices"


def _flatten_ranges(node: dict[str, Any], path: str) -> dict[str, Any]:
    """Returns dotted option → range of nested nodes."""
    ranges: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, dict) and not (value.keys() <= KEYS and value):
            ranges.update(_flatten_ranges(value, f"{path}{key}."))
        else:
            ranges[f"{path}{key}"] = value
    return ranges


def _find_range_problem(entry: Any) -> str:
    """Returns why an entry is not a range; empty if it is one."""
    if not isinstance(entry, dict):
        return f"'{entry}' is not a range; write {{low: 0, high: 1}} or {{choices: [a, b]}}"
    if "choices" in entry:
        valid = isinstance(entry["choices"], list) and entry["choices"] and len(entry) == 1
        return "" if valid else "choices must be a list, without other keys"
    low, high = entry.get("low"), entry.get("high")
    if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in (low, high)):
        return "low and high must be numbers"
    if not low < high:  # type: ignore[operator]
        return f"low {low} is not below high {high}"
    if entry.get("log") and low <= 0:  # type: ignore[operator]
        return f"low {low} of a logarithmic range must be above 0"
    if entry.get("int") and (low != int(low) or high != int(high)):  # type: ignore[arg-type]
        return "low and high of an int range must be integers"
    return ""
