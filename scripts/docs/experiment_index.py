"""Experiments with what varies in them, read from their files without composing a config."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml  # type: ignore[import-untyped]

from dml.config.schema import ExperimentConfig
from dml.core.installation import CONFIGS
from dml.results.catalog import experiment_ids, load_experiment

PAPERS = {
    "mft": "Mean fields",
    "pfml": "Potential fields",
    "metrix": "Metrix",
    "ccp": "Chance constraints",
    "oml": "Networks of today",
}


@dataclass(frozen=True)
class Experiment:
    """One file of `configs/experiment`.

    Attributes:
        about: its node `experiment`.
        grids: options that vary, and their values; one dictionary for each grid.
        fixed: choices of groups that it sets: protocol, backbone …
    """

    about: ExperimentConfig
    grids: tuple[dict[str, tuple[str, ...]], ...]
    fixed: dict[str, str]

    def uses(self, group: str, choice: str) -> bool:
        """Returns True if a run of the experiment has `<group>=<choice>`."""
        fixed = (self.fixed.get(group, ""),)
        return any(choice in grid.get(group, fixed) for grid in self.grids or ({},))


@cache
def list_experiments() -> tuple[Experiment, ...]:
    """Returns all experiments by paper, in the order of their tables and figures."""
    return tuple(map(_read, experiment_ids()))


def _read(name: str) -> Experiment:
    path = CONFIGS / "experiment" / f"{name}.yaml"
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    sweeper = content.get("hydra", {}).get("sweeper", {})
    common = {}
    for option, values in (sweeper.get("params") or {}).items():
        common[option] = _split(str(values))
    grids = []
    for text in sweeper.get("grids") or []:
        grids.append(common | _read_grid(text))
    if common and not grids:
        grids = [common]
    return Experiment(load_experiment(name), tuple(grids), _read_choices(content))


def _read_grid(text: str) -> dict[str, tuple[str, ...]]:
    grid = {}
    for word in text.split():
        option, _, values = word.partition("=")
        if not option.startswith("experiment."):
            grid[option] = _split(values)
    return grid


def _read_choices(content: dict[str, Any]) -> dict[str, str]:
    """Returns the choices of groups in a defaults list."""
    choices = {}
    for entry in content.get("defaults", []):
        if isinstance(entry, dict):
            for group, choice in entry.items():
                choices[group.rpartition("/")[2]] = str(choice)
    return choices


def _split(values: str) -> tuple[str, ...]:
    """Splits at the commas outside brackets: `[input],[pos_neg,anc_neg]` are two values."""
    return tuple(re.split(r",(?![^\[{]*[\]}])", values))
