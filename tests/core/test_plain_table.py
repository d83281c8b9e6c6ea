"""Tables without pandas are those of pandas, character for character."""

import numpy as np
import pandas as pd
import pytest

from dml.core.csv_cells import write_csv, write_csv_columns
from dml.core.plain_table import fit_table, format_table

TEXTS = [
    "a",
    "=1+1",
    'say "x"',
    "a,b",
    "日本",
    "tab\there",
    "line\nbreak",
    "-3",
    "+x",
    "'",
    "@",
    "",
]


def make_columns(texts, seed=0):
    random = np.random.default_rng(seed)
    count = len(texts)
    return {
        "query": np.array(texts, dtype=object),
        "label": np.array([None, *texts[1:]], dtype=object),
        "rank": np.arange(count),
        "distance": random.random(count).astype(np.float32) * 1000,
        "votes": random.random(count) * 10.0 ** random.integers(-9, 9, count),
        "duplicate": random.random(count) > 0.5,
        "path": np.array(texts)[::-1],
    }


@pytest.mark.parametrize("texts", [TEXTS, TEXTS[:1], ["long " * 30, "x"]])
def test_as_text(texts):
    columns = make_columns(texts)
    columns["unknown"] = np.full(len(texts), None)
    table = pd.DataFrame(columns).dropna(axis=1, how="all")
    assert format_table(columns) == table.to_string(index=False, float_format="%.4f")


@pytest.mark.parametrize("texts", [TEXTS, [*TEXTS, "a\rb"], TEXTS[:1]])
def test_as_csv(texts):
    columns = make_columns(texts)
    columns["votes"][0] = np.nan
    assert write_csv_columns(columns) == write_csv(pd.DataFrame(columns))
    nothing = {name: values[:0] for name, values in columns.items()}
    assert write_csv_columns(nothing) == write_csv(pd.DataFrame(nothing))


NEIGHBORS = {
    "query": [0, 0],
    "rank": [1, 2],
    "label": [None, None],
    "path": ["birds/1.jpg", "birds/2.jpg"],
    "duplicate": [False, False],
}


@pytest.mark.parametrize(
    ("width", "titles", "below"),
    [
        (40, ["query", "rank", "path", "duplicate"], None),
        (30, ["query", "rank", "path"], "in all rows: duplicate False"),
        (20, ["rank", "path"], "in all rows: query 0, duplicate False"),
        (5, ["rank", "path"], "in all rows: query 0, duplicate False"),
    ],
)
def test_a_table_for_a_narrow_terminal_loses_nothing(width, titles, below):
    lines = fit_table(NEIGHBORS, width).splitlines()
    assert lines[0].split() == titles
    assert lines[3:] == ([below] if below else [])


def test_one_row_keeps_a_column():
    assert (
        fit_table({"query": [0], "path": ["a.jpg"]}, 3) == " query\n     0\nin all rows: path a.jpg"
    )
