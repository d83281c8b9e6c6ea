"""Catalog of the experiments: the tables, figures and claims of the papers."""

from __future__ import annotations

from scripts.docs.component_pages import render, write_hours
from scripts.docs.descriptions import load_papers
from scripts.docs.experiment_index import PAPERS, Experiment, list_experiments
from scripts.docs.markdown import code, escape, table


def make_experiment_page() -> dict[str, str]:
    """Returns the page by its path below `docs/`."""
    papers = load_papers()
    sections = []
    for key, title in PAPERS.items():
        rows = [_make_row(one) for one in list_experiments() if one.paper == key]
        head = ("id", "title", "in the paper", "varies", "GPU hours")
        sections.append((title, papers.get(key), table(head, rows)))
    scripts = [
        (code(one.id), code(one.script)) for one in list_experiments() if one.script is not None
    ]
    page = render("experiments.md", sections=sections, scripts=table(("id", "command"), scripts))
    return {"experiments.md": page}


def _make_row(one: Experiment) -> tuple[str, ...]:
    item = one.id.partition("_")[2].partition("_")[0]
    place = item.replace("table", "Table ").replace("figure", "Figure ")
    others = [
        name[1:] for name in one.tables if name[1:].isdigit() and f"Table {name[1:]}" != place
    ]
    if others:
        place += f", numbers also in {', '.join(others)}"
    if one.paper == "claims":
        place = ""
    hours = write_hours(one.gpu_hours) if one.trains else "a script"
    return code(one.id), escape(one.title), place, _describe_grids(one), hours


def _describe_grids(one: Experiment) -> str:
    """Returns the options that vary: those of all grids together, with the number of values."""
    values: dict[str, dict[str, None]] = {}
    for grid in one.grids:
        for option, choices in grid.items():
            values.setdefault(option, {}).update(dict.fromkeys(choices))
    varied = {option: list(choices) for option, choices in values.items() if len(choices) > 1}
    varied.pop("method.result_id", None)  # a name
    return ", ".join(_describe_values(option, choices) for option, choices in varied.items())


def _describe_values(option: str, choices: list[str]) -> str:
    if len(choices) > 4 or any("$" in choice for choice in choices):
        return f"`{option}` ({len(choices)})"
    return code(f"{option}={','.join(choices)}")
