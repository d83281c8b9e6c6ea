"""The jobs of a multirun: a grid of values, or several grids for irregular tables.

    hydra:
      sweeper:
        params: {data: "cub,cars"}
        grids:
          - loss=c1,c2 method=plain
          - loss=c1,c2,ms method=ccp method.proxies_per_class=1,8

runs 2 × (2 + 6) jobs. A value on the command line that occurs in the grids selects the jobs with
that value (`method=plain` keeps the first line); any other value replaces the values of the grids.
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
    given: Sequence[str],
    loader: ConfigLoader | None = None,
) -> list[list[str]]:
    """Returns the overrides of every job.

    Args:
        params: option → its values, separated by commas.
        grids: lines of `option=values`, separated by spaces; a value contains none.
        given: overrides of the command line, which take precedence over `params` and `grids`.
        loader: lists the choices that match `loss=glob(mf*)`.

    Raises:
        ConfigError: an option has no values, such as `seed=range(3,0)`; or no job of the grids
        combines the values in `given`.
        HydraException: an override that cannot be parsed.
    """
    outside = _parse_values([f"{name}={values}" for name, values in (params or {}).items()], loader)
    typed = _parse_values(given, loader)
    lines = [_parse_values(line.split(), loader) for line in grids or ()]
    rows = [row for line in lines for row in _combine(line)] or [{}]
    in_grids = {(name, value) for row in rows for name, value in row.items()}
    selected: list[str] = []
    for name, values in {**outside, **typed}.items():
        if name in typed and in_grids.issuperset((name, value) for value in values):
            rows = [row for row in rows if row.get(name) in values]
            outside.pop(name, None)
            del typed[name]
            word = f"{name}={','.join(values)}"
            if not rows:
                others = " ".join(selected)
                raise ConfigError([f"{word}: not combined with {others} in this experiment"])
            selected.append(word)
        else:
            rows = [{key: row[key] for key in row if key != name} for row in rows]
    # A dictionary drops duplicates and keeps the order.
    all_jobs = {
        tuple(f"{key}={value}" for key, value in {**outer, **row}.items()): None
        for outer in _combine({**outside, **typed})
        for row in rows
    }
    return [list(job) for job in all_jobs]


def _parse_values(words: Sequence[str], loader: ConfigLoader | None) -> dict[str, list[str]]:
    """Returns option → values; if an option occurs twice, the later values."""
    values: dict[str, list[str]] = {}
    for override in OverridesParser.create(loader).parse_overrides(list(words)):
        key = override.get_key_element()
        if override.is_sweep_override():
            values[key] = [*override.sweep_string_iterator()]
        else:
            values[key] = [override.get_value_element_as_str()]
        if not values[key]:
            raise ConfigError([f"{override.input_line}: has no values"])
    return values


def _combine(values: Mapping[str, Sequence[str]]) -> list[Row]:
    """Returns every combination of values; the last option varies fastest."""
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
