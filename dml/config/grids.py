"""The jobs of a multirun: a grid of values, or several grids for irregular tables.

    hydra:
      sweeper:
        params: {data: "cub,cars"}
        grids:
          - loss=c1,c2 method=plain
          - loss=c1,c2,ms method=ccp method.proxies_per_class=1,8

runs 2 × (2 + 6) jobs. A value on the command line that occurs in the grids selects the jobs with
that value (`method=plain` keeps the first line); any other value replaces the values of the grids.
Options of a group go with its choice: `method=xbm` drops `method.proxies_per_class`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser

from dml.core.errors import ConfigError

Row = dict[str, str]  # option → value, as written on a command line


@dataclass(eq=False)
class GridEnded(Exception):
    """All jobs of a grid have ended in processes of a launcher.

    Attributes:
        jobs: overrides of every job.
        failures: overrides and error of every failed job.
        values: what the others returned.
    """

    jobs: list[list[str]]
    failures: list[tuple[list[str], Exception]]
    values: list[Any]


def expand_grids(
    params: Mapping[str, Any] | None,
    grids: Sequence[str] | None,
    overrides: Sequence[str],
    loader: ConfigLoader | None = None,
) -> list[list[str]]:
    """Returns the overrides of every job.

    Args:
        params: option → its values, separated by commas.
        grids: lines of `option=values`, separated by spaces; a value contains none.
        overrides: of the command line; they take precedence over `params` and `grids`.
        loader: lists the choices that match `loss=glob(mf*)`.

    Raises:
        ConfigError: an option has no values, such as `seed=range(3,0)`; or no job of the grids
            combines the values of the command line.
        HydraException: an override that cannot be parsed.
    """
    outside = _parse_values(_as_words(params or {}), loader)
    typed = _parse_values(overrides, loader)
    rows = _read_rows(grids or (), loader)
    selections = {}
    for name in outside | typed:
        if name in typed and _occur(rows, name, typed[name]):
            selections[name] = typed.pop(name)
            outside.pop(name, None)
    rows = _select(rows, selections)
    jobs: dict[tuple[str, ...], None] = {}  # in order, each job once
    for outer in _combine(outside | typed):
        for row in rows:
            # options of `outer` stand first, and their values hold
            values = outer | _without_replaced(row, outer) | outer
            jobs[tuple(_as_words(values))] = None
    return [list(job) for job in jobs]


def _without_replaced(row: Row, outer: Row) -> Row:
    """Returns a row without the options of groups in whose place `outer` has another choice."""
    kept = dict(row)
    for name in row:
        group, is_option, _ = name.partition(".")
        is_replaced = group in row and row[group] != outer.get(group, row[group])
        if is_option and is_replaced:
            del kept[name]
    return kept


def _as_words(values: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


def _read_rows(grids: Sequence[str], loader: ConfigLoader | None) -> list[Row]:
    """Returns the combinations of all lines; an empty one if there are no lines."""
    rows: list[Row] = []
    for line in grids:
        rows += _combine(_parse_values(line.split(), loader))
    return rows or [{}]


def _occur(rows: Sequence[Row], name: str, values: Sequence[str]) -> bool:
    """Returns whether each value of an option occurs in a row."""
    return {row.get(name) for row in rows}.issuperset(values)


def _select(rows: list[Row], selections: Mapping[str, Sequence[str]]) -> list[Row]:
    """Returns the rows that have one of the selected values of every option.

    Raises:
        ConfigError: there is none.
    """
    words: list[str] = []
    for name, values in selections.items():
        rows = [row for row in rows if row.get(name) in values]
        word = f"{name}={','.join(values)}"
        if not rows:
            others = " ".join(words)
            raise ConfigError([f"{word}: not combined with {others} in this experiment"])
        words.append(word)
    return rows


def _parse_values(words: Sequence[str], loader: ConfigLoader | None) -> dict[str, list[str]]:
    """Returns option → values; if an option occurs twice, the later values."""
    options: dict[str, list[str]] = {}
    for override in OverridesParser.create(loader).parse_overrides(list(words)):
        if override.is_interval_sweep():
            problem = "an interval has no list of values; write them with commas, or search it by"
            name = override.get_key_element()
            example = f"search=bayes '+space.{name}={{low:…,high:…}}'"
            raise ConfigError([f"{override.input_line}: {problem} {example}"])
        if override.is_sweep_override():
            values = list(override.sweep_string_iterator())
        else:
            values = [override.get_value_element_as_str()]
        if not values:
            raise ConfigError([f"{override.input_line}: has no values"])
        options[override.get_key_element()] = values
    return options


def _combine(values: Mapping[str, Sequence[str]]) -> list[Row]:
    """Returns every combination of values; the last option varies fastest."""
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
