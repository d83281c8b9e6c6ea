"""The search space, `space`: ranges and choices at the dotted names of the options.

Files of losses, methods and experiments and the command line add to one node; null removes a range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from omegaconf import OmegaConf

from dml.config.options import is_below
from dml.core.errors import nearest

KEYS = {"low", "high", "log", "int", "step", "choices"}
# What a trial sets itself, so that a searched value would be lost.
OF_TRIALS = {
    "seed": "each trial has a seed of its own; search on one seed, and train the best with others",
    "protocol.repeats": "a trial trains one repeat; the best configuration trains all",
}


# Which images there are: they are read once, before the search.
OF_IMAGES = (
    "data.background", "data.classes", "data.crop", "data.exif_orientation", "data.images",
    "data.images_per_class_at_most", "data.max_pixels", "data.query_gallery", "data.reader",
    "data.root", "data.skip_corrupt", "protocol.split_seed", "protocol.splits",
    "protocol.test_share", "protocol.validation_share",
)  # fmt: skip


def merge_spaces(space: dict[str, Any], grid: bool = False) -> dict[str, dict[str, Any]]:
    """Returns dotted option → `{low, high, …}` or `{choices}`, sorted by option.

    Args:
        space: the node `space`.
        grid: only the options that have choices.
    """
    ranges: dict[str, Any] = {}
    for name, entry in _flatten_ranges(space, ""):
        if isinstance(entry, dict) and "choices" in entry:
            entry = {"choices": entry["choices"]}  # may be merged with the range of the loss
        elif grid:
            continue
        if entry is not None:
            ranges[name] = entry
    return dict(sorted(ranges.items()))


def grid_size(space: Any) -> int:
    """Returns the number of combinations of all choices."""
    if OmegaConf.is_config(space):
        space = OmegaConf.to_container(space, resolve=True)
    entries = merge_spaces(space, grid=True).values()
    return math.prod(len(entry["choices"]) for entry in entries)


def find_problems(space: dict[str, Any], options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the problems of a space as (option, problem).

    Args:
        space: the node `space`.
        options: dotted option → value of the whole config.
    """
    grid = options["search.sampler"] == "grid"
    ranges = merge_spaces(space, grid)
    if not ranges:
        example = "{choices:[1e-5,1e-4]}" if grid else "{low:1e-6,high:1e-3,log:true}"
        yield "search", f"nothing to search; for example '+space.optim.lr={example}'"
        return
    entries = dict(_flatten_ranges(space, ""))
    for name, entry in ranges.items():
        problem = _find_unknown_option(name, options) or _find_fixed_option(name)
        problem = problem or _find_unknown_key(entries[name]) or _find_range_problem(entry)
        if problem:
            yield f"space.{name}", problem
    if grid:
        yield from _find_grid_problems(options, grid_size(space))


def _find_grid_problems(options: dict[str, Any], size: int) -> Iterator[tuple[str, str]]:
    """Yields the problems of a search over all combinations of the choices, `size` of them."""
    trials = options["search.trials"]
    if trials > size:
        yield "search.trials", f"{trials} is above the {size} combinations of the choices"
    if options["search.try_defaults"]:
        yield "search.try_defaults", "a grid tries all combinations of the choices; leave it out"


def _flatten_ranges(node: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yields (dotted option, entry) of nested nodes."""
    for key, value in node.items():
        if isinstance(value, dict) and not value.keys() & KEYS:
            yield from _flatten_ranges(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _find_unknown_option(name: str, options: dict[str, Any]) -> str:
    """Returns the problem of a name that is neither an option nor a node; empty without one.

    It may be an unknown key of the range of an option.
    """
    if name in options or any(option.startswith(f"{name}.") for option in options):
        return ""
    option, _, key = name.rpartition(".")
    if option in options:
        return f"no such key of the range of {option}{_suggest_key(key)}"
    return f"no such option{nearest(name, options)}"


def _find_fixed_option(name: str) -> str:
    """Returns why an option cannot be searched; empty if it can."""
    if name in OF_TRIALS:
        return OF_TRIALS[name]
    if name.startswith("search."):
        return "options of the search cannot be searched"
    if is_below(name, OF_IMAGES):
        return "all trials have the same images, so that their scores can be compared"
    return ""


def _find_unknown_key(entry: Any) -> str:
    """Returns the problem of a range with a key that is none; empty without one."""
    if not isinstance(entry, dict) or entry.keys() <= KEYS:
        return ""
    key = min(entry.keys() - KEYS)
    return f"'{key}' is no key of a range{_suggest_key(key)}"


def _suggest_key(key: str) -> str:
    others = f"; keys are {', '.join(sorted(KEYS))}"
    return nearest(key, KEYS) or others


def _find_range_problem(entry: Any) -> str:
    """Returns the problem of an invalid range; empty for a valid one."""
    if not isinstance(entry, dict):
        return f"'{entry}' is not a range; write {{low: 0, high: 1}} or {{choices: [a, b]}}"
    if "choices" in entry:
        choices = entry["choices"]
        if not isinstance(choices, list) or not choices:
            return "choices must be a list"
        return ""
    return _find_end_problem(entry) or _find_kind_problem(entry)


def _find_end_problem(entry: dict[str, Any]) -> str:
    """Returns the problem of the ends of a range, low and high; empty without one."""
    low: Any = entry.get("low")
    high: Any = entry.get("high")
    is_log = bool(entry.get("log"))
    if not _is_number(low) or not _is_number(high):
        return "low and high must be numbers"
    if not math.isfinite(low) or not math.isfinite(high):
        return f"low {low} and high {high} must be finite"
    if not low < high:
        return f"low {low} is not below high {high}"
    if is_log and low <= 0:
        return f"low {low} of a logarithmic range must be above 0; add log: false"
    if is_log and entry.get("int") is True and low < 1:
        return f"low {low} of a logarithmic range of integers must be at least 1"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _find_kind_problem(entry: dict[str, Any]) -> str:
    """Returns the problem of the keys log, int and step of a range; empty without one."""
    for key in ("log", "int"):
        if not isinstance(entry.get(key, False), bool | None):
            return f"{key} must be true or false, not '{entry[key]}'"
    step: Any = entry.get("step")
    if step is None:
        return ""
    if not _is_number(step) or step <= 0:
        return f"step must be a number above 0, not '{step}'"
    if entry.get("log"):
        return "a logarithmic range takes no step; leave log or step out"
    return ""
