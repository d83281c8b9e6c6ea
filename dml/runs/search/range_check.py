"""Values of a search that no trial can have, named before the first trial."""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from dml.config.check import change
from dml.config.schema import Config
from dml.core.errors import ConfigError
from dml.runs.build import Builder
from dml.runs.search.proposals import Space

INSIDE = 0.381966  # where a range is tried, beside its ends; no round number
NO_INTEGER = "valid integer"  # of pydantic's message


def check_ranges(config: Config, space: Space) -> list[str]:
    """Tries the ends and the choices of each range, with the other options of the config.

    Returns:
        Notes on values that are refused: trials with them fail, unless another option changes that.

    Raises:
        ConfigError: a range has no integers, and its option takes nothing else.
    """
    notes = []
    for name, interval in space.items():
        for value in _list_values(interval):
            problem = _find_problem(config, name, value)
            if isinstance(interval, FloatDistribution) and NO_INTEGER in problem:
                raise ConfigError([f"space.{name}: the option takes integers only; add int: true"])
            if problem:
                notes.append(f"space.{name}: trials with {value} fail: {problem}")
                break
    return notes


def _find_problem(config: Config, name: str, value: Any) -> str:
    """Returns why a config is refused with another value of an option; empty if it is not."""
    try:
        Builder(change(config, {name: value, "search": None})).check_arguments()
    except ConfigError as error:
        return error.problems[0]
    return ""


def _list_values(interval: BaseDistribution) -> list[Any]:
    """Returns the choices of a range; or its ends, and of real numbers one between them."""
    if isinstance(interval, CategoricalDistribution):
        return list(interval.choices)
    low, high = interval.low, interval.high  # type: ignore[attr-defined]
    if isinstance(interval, FloatDistribution) and interval.step is None:
        return [low + INSIDE * (high - low), low, high]
    return [low, high]
