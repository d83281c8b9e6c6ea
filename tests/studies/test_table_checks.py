"""Tables that are damaged, or that somebody edited, make no page."""

import math
from pathlib import Path

import pandas as pd
import pytest

from dml.core.errors import UserError
from studies import compare
from studies.comparison.results import Results
from studies.comparison.table_files import IMAGES, SUFFIX, read_tables, write_tables

PUBLISHED = Path("docs/results/networks_emoji")


@pytest.fixture
def tables():
    return read_tables(Results._fields, PUBLISHED)


def refused(tables, folder):
    """Returns why changed tables are refused."""
    write_tables(tables, folder)
    with pytest.raises(UserError) as refusal:
        Results.read(folder)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("scores", "map_at_r", 384.9),
        ("scores", "map_at_r", math.nan),
        ("scores", "precision_at_1", -3),
        ("scores", "validation", math.inf),
        ("scores", "untrained", -0.001),
        ("classes", "0", 999),
        ("classes", "684", math.nan),
        ("curves", "validation", 400),
        ("trials", "value", 100.5),
    ],
)
def test_values_that_are_no_percentage(tables, name, column, value, tmp_path):
    row = 3
    tables[name].loc[row, column] = value
    assert tables[name].arm[row] != IMAGES
    text = refused(tables, tmp_path)
    assert text.startswith(f"{tmp_path / name}{SUFFIX}: a percentage is missing, below 0 or above")
    assert f"arm {tables[name].arm[row]}, search" in text


@pytest.mark.parametrize("name", Results._fields)
def test_rows_that_are_there_twice(tables, name, tmp_path):
    table = tables[name]
    tables[name] = pd.concat([table, table[-1:]], ignore_index=True)
    assert f"has two rows for arm {table.arm.iloc[-1]}, search " in refused(tables, tmp_path)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("scores", "validation"),
        ("scores", "fold"),
        ("scores", "best_step"),
        ("curves", "step"),
        ("trials", "value"),
    ],
)
def test_columns_that_are_missing_or_have_text(tables, name, column, tmp_path):
    del tables[name][column]
    assert f"{name}{SUFFIX}: has no column {column}" in refused(tables, tmp_path)


def test_text_among_numbers(tables, tmp_path):
    tables["scores"]["map_at_r"] = tables["scores"].map_at_r.astype(object)
    tables["scores"].loc[0, "map_at_r"] = "much"
    assert "map_at_r has text, not numbers" in refused(tables, tmp_path)


def test_scores_that_are_not_the_mean_of_their_classes(tables, tmp_path):
    scores = tables["scores"]
    is_changed = (scores.arm == "ms") & (scores.search == 1) & (scores.epochs == 24)
    scores.loc[is_changed, "map_at_r"] += 0.01
    text = "the score of arm ms, search 1, epochs 24 is not the mean of its classes"
    assert text in refused(tables, tmp_path)


def test_scores_that_prefer_a_run_without_classes(tables, tmp_path):
    scores = tables["scores"]
    is_changed = (scores.arm == "ms") & (scores.search == 1) & (scores.epochs == 48)
    scores.loc[is_changed, "validation"] = 90
    text = "classes lacks the run that validation prefers: arm ms, search 1, epochs 48"
    assert text in refused(tables, tmp_path)


@pytest.mark.parametrize("name", Results._fields)
def test_a_search_that_a_table_lacks(tables, name, tmp_path):
    table = tables[name]
    is_lost = (table.arm == "c1") & (table.search == 1)
    tables[name] = table[~is_lost]
    text = refused(tables, tmp_path)
    other = "classes" if name == "scores" else name
    assert text == f"{tmp_path}: scores and {other} have other searches: search 1 of c1"


def test_numbers_of_images_that_are_missing(tables, tmp_path):
    classes = tables["classes"]
    tables["classes"] = classes[classes.arm != IMAGES]
    assert "classes has no numbers of images" in refused(tables, tmp_path)


@pytest.mark.parametrize("name", Results._fields)
@pytest.mark.parametrize("size", [0, 500, -1])
def test_files_that_are_cut_off(tables, name, size, tmp_path, capsys):
    folder = tmp_path / "networks_emoji"
    write_tables(tables, folder)
    file = folder / f"{name}{SUFFIX}"
    content = file.read_bytes()
    file.write_bytes(content[:size])
    assert compare.main(["networks_emoji", "--pages", str(tmp_path), "--overwrite"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {file} is damaged (")
    assert not (tmp_path / "networks_emoji.md").exists()


def test_a_failed_trial_is_no_mistake(tables, tmp_path):
    tables["trials"].loc[1, "value"] = math.nan
    write_tables(tables, tmp_path)
    assert len(Results.read(tmp_path).trials) == len(tables["trials"])


def test_tables_of_another_comparison(tables, tmp_path, capsys):
    folder = tmp_path / "heads_emoji"
    for table in tables.values():
        table["arm"] = table.arm.replace("c1", "renamed")
    write_tables(tables, folder)
    assert compare.main(["heads_emoji", "--pages", str(tmp_path), "--overwrite"]) == 1
    assert capsys.readouterr().err == f"error: {folder}: heads_emoji has no arm renamed\n"
