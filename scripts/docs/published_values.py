"""Hyperparameters that papers print, by loss and dataset, from `configs/params`."""

from __future__ import annotations

from functools import cache
from typing import Any

import yaml  # type: ignore[import-untyped]

from dml.core.installation import CONFIGS
from dml.results.frame import format_option

DATASETS = {
    "default": "others",
    "cub": "CUB",
    "cars": "Cars",
    "sop": "SOP",
    "inshop": "In-Shop",
    "inat": "iNaturalist",
}


def list_published_values(loss: str) -> list[tuple[str, str, dict[str, str]]]:
    """Returns the tables with values for a loss, as (table, dataset, option → value)."""
    found = []
    for name, table in _load_tables().items():
        datasets = table.get(loss, {})
        for key, values in datasets.items():
            dataset = DATASETS.get(key, key)
            if [*datasets] == ["default"]:
                dataset = "all"
            written = {option: format_option(value) for option, value in values.items()}
            found.append((name, dataset, written))
    return found


@cache
def _load_tables() -> dict[str, dict[str, Any]]:
    tables = {}
    for path in sorted((CONFIGS / "params").glob("*.yaml")):
        tables[path.stem] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return tables
