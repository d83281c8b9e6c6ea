"""Where a paper and its authors' code differ from this framework, for the rows of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dml.config.schema import ExperimentConfig
from dml.results.published import read_table
from dml.runs.console import DASH

GENERAL = ("mlrc", "baselines")  # not the source of an experiment: they hold for those of any paper


@dataclass(frozen=True)
class Departure:
    """A line of `papers/departures.csv`.

    Attributes:
        paper, item: whose, and what.
        printed, code, ours: what the paper says, what its authors' code does, what is done here.
    """

    paper: str
    item: str
    printed: str
    code: str
    ours: str

    def __str__(self) -> str:
        parts = []  # a dash: not printed, or no such code
        if self.printed != DASH:
            parts.append(f"paper: {self.printed}")
        if self.code != DASH:
            parts.append(f"authors' code: {self.code}")
        parts.append(f"here: {self.ours}")
        return f"{self.item}: {'; '.join(parts)}"


def find_departures(rows: Iterable[Mapping[str, Any]], about: ExperimentConfig) -> list[Departure]:
    """Returns the departures that apply to some rows of an experiment, in the order of the table.

    Args:
        rows: the dotted options of each row.
        about: the experiment; without a paper, the departures from all papers apply.
    """
    rows = list(rows)
    departures = []
    for line in read_table("departures.csv"):
        is_of_paper = about.source in (None, line["paper"]) or line["paper"] in GENERAL
        if is_of_paper and any(_applies(line, options, about) for options in rows):
            texts = [line[name] for name in Departure.__dataclass_fields__]
            departures.append(Departure(*texts))
    return departures


def _applies(line: Mapping[str, str], options: Mapping[str, Any], about: ExperimentConfig) -> bool:
    """Returns whether a row uses one of the config files of a line, and is what it applies to."""
    for word in line["applies_to"].split():
        group, _, names = word.partition("=")
        if options.get(f"{group}.name") not in names.split(","):
            return False
    return not _config_files(options, about).isdisjoint(line["config"].split())


def _config_files(options: Mapping[str, Any], about: ExperimentConfig) -> set[str]:
    """Returns the files of `configs/` that a row uses, without their ending."""
    names = {}
    for group in ("protocol", "data", "backbone", "loss", "method"):
        names[group] = options.get(f"{group}.name")
    files = {f"{group}/{name}" for group, name in names.items()}
    files.add(f"recipe/{names['protocol']}_{names['data']}")
    files |= {f"experiment/{about.id}", f"params/{about.params}"}
    return files
