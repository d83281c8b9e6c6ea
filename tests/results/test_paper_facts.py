"""Printed settings of experiments are those of their cells, and departures say what configs do."""

import csv
from pathlib import Path

import pytest
import yaml

from dml.config.compositions import compose_config
from dml.core.installation import CONFIGS
from dml.results.catalog import list_cells
from dml.results.published import read_table

with open(Path(__file__).with_name("paper_facts.csv"), newline="") as file:
    FACTS = list(csv.DictReader(file))
DEPARTURES = read_table("departures.csv")


def read_settings(text):
    """`a.b=1|2; c=x` as the set of the values of each option."""
    pairs = [one.strip().partition("=") for one in text.split(";") if one.strip()]
    return {k: {normalize(yaml.safe_load(v)) for v in values.split("|")} for k, _, values in pairs}


def normalize(value):
    try:
        return str(value) if isinstance(value, bool) else f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


def value_of(options, option):
    for key in option.split("."):
        options = options.get(key)
    return normalize(options)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: f"{fact['experiments']}-{fact['where']}")
def test_the_cells_of_an_experiment_have_the_printed_settings(fact):
    """In every experiment, all cells of `where`; `1|2`: each of these values, and no other."""
    where, settings = read_settings(fact["where"]), read_settings(fact["settings"])
    for experiment in fact["experiments"].split():
        cells = [
            cell.options
            for cell in list_cells(experiment)
            if all(value_of(cell.options, option) in values for option, values in where.items())
        ]
        found = {option: {value_of(cell, option) for cell in cells} for option in settings}
        assert found == settings, experiment


@pytest.mark.parametrize("row", DEPARTURES, ids=lambda row: f"{row['paper']}-{row['item']}")
def test_departures_name_files_and_their_settings(row):
    """`setting`: options of a command, of which the last one is what the files set."""
    assert all(row[column] for column in ("paper", "item", "ours", "config"))
    for file in row["config"].split():
        assert (CONFIGS / f"{file}.yaml").is_file()
        group, _, choice = file.partition("/")
        *words, setting = row["setting"].rsplit(" ", 1) if row["setting"] else [""]
        protocol = {"protocol": choice, "recipe": choice.split("_")[0]}.get(group)
        if setting:
            option, _, value = setting.partition("=")
            chosen = [f"protocol={protocol}"] if protocol else []
            typed = "".join(words).split()
            recipe = [f"data={choice.split('_')[1]}"] if group == "recipe" else ["data=cub"]
            data = [] if any(word.startswith("data=") for word in typed) else recipe
            options = compose_config([*chosen, *data, *typed])
            assert value_of(options, option) == normalize(yaml.safe_load(value)), file
