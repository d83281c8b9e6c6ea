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
        grids = self.grids or ({},)
        return any(choice in grid.get(group, (self.fixed.get(group, ""),)) for grid in grids)


@cache
def list_experiments() -> tuple[Experiment, ...]:
    """Returns all experiments by paper, in the order of their tables and figures."""
    return tuple(_read(name) for name in experiment_ids())


def _read(name: str) -> Experiment:
    path = CONFIGS / "experiment" / f"{name}.yaml"
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    sweeper = content.get("hydra", {}).get("sweeper", {})
    common = {key: _split(str(value)) for key, value in (sweeper.get("params") or {}).items()}
    grids = [common | _read_grid(text) for text in sweeper.get("grids") or []]
    overrides = [entry for entry in content.get("defaults", []) if isinstance(entry, dict)]
    return Experiment(
        load_experiment(name),
        tuple(grids or ([common] if common else [])),
        {key.rpartition("/")[2]: str(value) for one in overrides for key, value in one.items()},
    )


def _read_grid(text: str) -> dict[str, tuple[str, ...]]:
    words = [word.partition("=") for word in text.split()]
    return {key: _split(value) for key, _, value in words if not key.startswith("experiment.")}


def _split(values: str) -> tuple[str, ...]:
    """Splits at the commas outside brackets: `[input],[pos_neg,anc_neg]` are two values."""
    return tuple(re.split(r",(?![^\[{]*[\]}])", values))
