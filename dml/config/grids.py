"""What a multirun runs: a grid of values, or several grids for tables that are no rectangle.

    hydra:
      sweeper:
        params: {data: "cub,cars"}
        grids:
          - loss=c1,c2 method=plain
          - loss=c1,c2,ms method=ccp method.proxies_per_class=1,8

runs 2 × (2 + 6) jobs. A value on the command line that occurs in the grids selects their jobs
(`method=plain` leaves the first line); any other takes the place of what is there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser

Row = dict[str, str]  # option → value, as written on a command line


def jobs(
    params: Mapping[str, Any] | None,
    grids: Sequence[str] | None,
    given: Sequence[str],
    loader: ConfigLoader | None = None,
) -> list[list[str]]:
    """The overrides of every job.

    Args:
        params: option → its values, separated by commas.
        grids: lines of `option=values` with spaces between them; a value has none inside.
        given: overrides of the command line, which win over both.
        loader: knows the choices that `loss=glob(mf*)` means.

    Raises:
        HydraException: an override that cannot be read.
    """
    own = _values([f"{name}={values}" for name, values in (params or {}).items()], loader)
    typed = _values(given, loader)
    lines = [_values(line.split(), loader) for line in grids or ()]
    rows = [row for line in lines for row in _product(line)] or [{}]
    for name, values in {**own, **typed}.items():
        in_rows = {row[name] for row in rows if name in row}
        if in_rows and name in typed and in_rows.issuperset(values):
            rows = [row for row in rows if row.get(name) in values]
            own.pop(name, None)
            del typed[name]
        else:
            rows = [{key: row[key] for key in row if key != name} for row in rows]
    found = {
        tuple(f"{key}={value}" for key, value in {**outer, **row}.items()): None
        for outer in _product({**own, **typed})
        for row in rows
    }
    return [list(job) for job in found]


def _values(words: Sequence[str], loader: ConfigLoader | None) -> dict[str, list[str]]:
    """Option → its values; of an option that comes twice, the later."""
    found: dict[str, list[str]] = {}
    for override in OverridesParser.create(loader).parse_overrides(list(words)):
        if override.is_sweep_override():
            found[override.get_key_element()] = [*override.sweep_string_iterator()]
        else:
            found[override.get_key_element()] = [override.get_value_element_as_str()]
    return found


def _product(values: Mapping[str, Sequence[str]]) -> list[Row]:
    """Every combination, the last option varying fastest."""
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
