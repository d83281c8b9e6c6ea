"""Checks of the tables of a comparison: a damaged file, or an edited one, makes no page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from dml.core.errors import UserError
from studies.comparison.table_files import IMAGES, KEYS, METRICS, SUFFIX

SEARCH = list(KEYS[:2])
ROW_KEYS = {  # what names a row of each table
    "scores": [*KEYS, "fold"],
    "classes": list(KEYS),
    "curves": [*KEYS, "step"],
    "trials": [*SEARCH, "number"],
}
PERCENT = {  # columns of percentages; of `classes` all that are no key
    "scores": [*METRICS, "validation", "untrained"],
    "classes": [],
    "curves": ["validation"],
    "trials": ["value"],
}
OF_RUNS = ["steps", "best_step", "stages", "processor_seconds"]  # further numbers in `scores`
ROUNDED = 0.001  # points between a score and the mean of its classes: both have six digits


def check_tables(tables: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Checks that tables are complete, plausible, and tell the same.

    Args:
        tables: name → table, of `Results`.
        folder: that has them, for the message.

    Raises:
        UserError: a column is missing or has text; a percentage is missing, below 0 or above 100;
            a row is there twice; or a table lacks a search, or has other scores than another one.
    """
    for name, table in tables.items():
        problem = _find_problem(name, table)
        if problem:
            raise UserError(f"{folder / name}{SUFFIX}: {problem}")
    problem = _find_difference(tables)
    if problem:
        raise UserError(f"{folder}: {problem}")


def _find_problem(name: str, table: pd.DataFrame) -> str:
    """Returns what is wrong with a table alone; empty if nothing is."""
    keys = ROW_KEYS[name]
    numbers = PERCENT[name]
    if name == "scores":
        numbers = [*numbers, *OF_RUNS]
    for column in [*keys, *numbers]:
        if column not in table:
            return f"has no column {column}"
    is_twice = table.duplicated(keys)
    if is_twice.any():
        return f"has two rows for {_describe(table[is_twice].iloc[0], keys)}"
    values = table[numbers]
    if name == "classes":
        values = table[table.arm != IMAGES].drop(columns=keys)
    for column in values:
        if not pd.api.types.is_numeric_dtype(values[column]):
            return f"{column} has text, not numbers"
    if name == "trials":
        values = values.dropna()  # trials that failed
    shares = values[values.columns.difference(OF_RUNS)]
    is_wrong = ~((shares >= 0) & (shares <= 100)).all(axis=1)
    if is_wrong.any():
        row = _describe(table.loc[is_wrong.idxmax()], keys)
        return f"a percentage is missing, below 0 or above 100: {row}"
    return ""


def _find_difference(tables: Mapping[str, pd.DataFrame]) -> str:
    """Returns in what tables contradict each other; empty if they do not."""
    scores, classes = tables["scores"], tables["classes"]
    searches = pd.MultiIndex.from_frame(scores[SEARCH]).unique()
    for name in ("classes", "curves", "trials"):
        table = tables[name]
        table = table[table.arm != IMAGES]
        others = pd.MultiIndex.from_frame(table[SEARCH]).unique()
        different = searches.symmetric_difference(others)
        if len(different):
            arm, search = different[0]
            return f"scores and {name} have other searches: search {search} of {arm}"
    is_images = classes.arm == IMAGES
    if not is_images.any():
        return "classes has no numbers of images"
    images = classes[is_images].iloc[0].drop(list(KEYS)).astype(float)
    means = classes[~is_images].set_index(list(KEYS)) @ (images / images.sum())
    runs = scores.groupby(list(KEYS))[["map_at_r", "validation"]].mean()
    for run in runs.validation.groupby(SEARCH).idxmax():
        if run not in means.index:
            row = _describe(pd.Series(run, list(KEYS)), list(KEYS))
            return f"classes lacks the run that validation prefers: {row}"
    expected = runs.map_at_r.reindex(means.index)
    is_other = ~((means - expected).abs() <= ROUNDED)
    if is_other.any():
        row = _describe(pd.Series(is_other.idxmax(), list(KEYS)), list(KEYS))
        return f"the score of {row} is not the mean of its classes"
    return ""


def _describe(row: pd.Series, keys: list[str]) -> str:
    """Returns the keys of a row as text, such as "arm ms, search 0, epochs 24"."""
    return ", ".join(f"{key} {row[key]}" for key in keys)
