"""Catalog of the experiments: the tables and figures of the papers."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.docs.component_pages import render, write_hours
from scripts.docs.descriptions import load_papers
from scripts.docs.experiment_index import PAPERS, Experiment, list_experiments
from scripts.docs.markdown import code, escape, table

NO_PAPER = "oml"  # the section of experiments of no paper
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


def make_experiment_page() -> dict[str, str]:
    """Returns the page by its path below `docs/`."""
    papers, rehearsed = load_papers(), _read_rehearsal()
    head = ("id", "title", "in the paper", "varies", "GPU hours", "status")
    rows: dict[str, list[tuple[str, ...]]] = {key: [] for key in PAPERS}
    scripts = []
    for experiment in list_experiments():
        about = experiment.about
        paper = about.id.partition("_")[0]
        section = paper if paper in PAPERS else about.source or NO_PAPER
        rows[section].append(_make_row(experiment, rehearsed))
        if about.script:
            scripts.append((code(about.id), code(about.script)))
    sections = []
    for key, title in PAPERS.items():
        sections.append((title, papers.get(key), table(head, rows[key])))
    page = render(
        "experiments.md",
        sections=sections,
        scripts=table(("id", "command"), scripts),
        recipes=len(rehearsed),
        reproduced=len(list(RESULTS.glob("*_runs.csv"))),
    )
    return {"experiments.md": page}


def _read_rehearsal() -> dict[str, str]:
    """Returns what the rehearsal found, by experiment."""
    text = (RESULTS / "rehearsal.md").read_text(encoding="utf-8")
    statuses = {}
    for id, runs, outcome in re.findall(r"^\| (\w+) \| (\d+) of .* \| (.*) \|$", text, re.M):
        if outcome != "ran to its report":
            statuses[id] = outcome
        elif int(runs):
            statuses[id] = "runs in its smallest form"
        else:
            statuses[id] = "figure drawn from toy data"
    return statuses


def _make_row(one: Experiment, rehearsed: dict[str, str]) -> tuple[str, ...]:
    about = one.about
    item = about.id.partition("_")[2].partition("_")[0]
    place = item.replace("table", "Table ").replace("figure", "Figure ")
    if about.id.partition("_")[0] not in PAPERS:
        place = ", ".join(about.tables)
    others = []
    for name in about.tables:
        number = name[1:]
        if number.isdigit() and place != f"Table {number}":
            others.append(number)
    if others:
        place += f", numbers also in {', '.join(others)}"
    hours = "a script"
    if about.trains:
        hours = write_hours(about.gpu_hours)
    status = rehearsed.get(about.id, "")
    if (RESULTS / f"{about.id}_runs.csv").exists():
        status = f"[contributed results](results/{about.id}_runs.csv)"
    return code(about.id), escape(about.title), place, _describe_grids(one), hours, status


def _describe_grids(one: Experiment) -> str:
    """Returns the options that vary: those of all grids together, with the number of values."""
    values: dict[str, dict[str, None]] = {}
    for grid in one.grids:
        for option, choices in grid.items():
            values.setdefault(option, {}).update(dict.fromkeys(choices))
    values.pop("method.result_id", None)  # a name
    varied = []
    for option, together in values.items():
        if len(together) > 1:
            varied.append(_describe_values(option, list(together)))
    return ", ".join(varied)


def _describe_values(option: str, choices: list[str]) -> str:
    if len(choices) > 4 or any("$" in choice for choice in choices):
        return f"`{option}` ({len(choices)})"
    return code(f"{option}={','.join(choices)}")
