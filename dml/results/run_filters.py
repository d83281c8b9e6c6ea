"""Filters of a list of runs: `loss=ms state=finished protocol.epochs=60`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dml.core.errors import UserError, nearest
from dml.results.option_texts import format_option
from dml.results.run_list import GROUPS, ListedRun, State

LABELS = (*GROUPS, "experiment", "name", "note")


@dataclass(frozen=True)
class RunFilter:
    """A condition that runs meet.

    Attributes:
        name: `state`, `id`, a group, or an option by its dotted name or its last part.
        values: one of them must match; `*` stands for any characters.
    """

    name: str
    values: tuple[str, ...]

    def matches(self, run: ListedRun) -> bool:
        """Returns True if the run meets the condition."""
        return any(_is_equal(have, want) for have in self._values_of(run) for want in self.values)

    def _values_of(self, run: ListedRun) -> list[str]:
        if self.name == "state":
            return [run.state]
        if self.name == "id":
            return [run.id]
        if self.name in LABELS:
            return [run.labels[self.name]] if self.name in run.labels else []
        if self.name in run.options:
            return [format_option(run.options[self.name])]
        end = f".{self.name}"
        return [format_option(v) for option, v in run.options.items() if option.endswith(end)]


def _is_equal(have: str, want: str) -> bool:
    try:
        return float(have) == float(want)
    except ValueError:
        return fnmatchcase(have.lower(), want.lower())


def parse_filters(words: Sequence[str], runs: Sequence[ListedRun]) -> list[RunFilter]:
    """Returns the filters of words such as `loss=ms,contrastive`.

    Raises:
        UserError: a name that no run has, or a state that does not exist.
    """
    options = {name for run in runs for name in run.options}
    names = {"state", "id", *LABELS, *options, *(name.rpartition(".")[2] for name in options)}
    filters = []
    for word in words:
        name, _, values = word.partition("=")
        if runs and name not in names:
            hint = nearest(name, names) or "; filter by state, loss, data, seed, or any option"
            raise UserError(f"{name}: no run has such an option{hint}")
        states = list(State)
        for value in values.split(",") if name == "state" else ():
            if value not in states and "*" not in value:
                hint = nearest(value, states) or f"; one of {' | '.join(states)}"
                raise UserError(f"state: '{value}' does not exist{hint}")
        filters.append(RunFilter(name, tuple(values.split(","))))
    return filters
