"""What keeps a number from being compared with a printed one, or is worth knowing beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dml.reporting.published_results import PublishedResult
from dml.reporting.run_groups import Group, differing, shown

# Code → (what it means, whether it forbids the comparison with printed numbers).
MEANING = {
    "S": ("stand-in data", True),
    "D": ("other data than the experiment's", True),
    "P": ("another protocol", True),
    "E": ("epoch chosen by another rule", True),
    "N": ("other label noise", True),
    "W": ("other backbone or weights", True),
    "B": ("other budget of epochs, steps or search trials", True),
    "O": ("other options", True),
    "X": ("not part of the experiment", True),
    "T": ("times depend on the device and are not compared", False),
    "R": ("fewer repeats than the paper", False),
    "Q": ("the printed number is not the authors' own run, or they do not say", False),
    "C": ("code with changes that are in no commit", False),
    "M": ("runs of one row differ in code, versions or device", False),
}

# Options by what a difference in them means; the first prefix that fits counts.
KINDS = (
    ("data.label_noise", "N"),
    ("data.query_gallery", "P"),
    ("data.name", "D"),
    ("data.stand_in", "D"),
    ("data.reader", "D"),
    ("protocol.selected_on", "E"),
    ("protocol.select_metric", "E"),
    ("protocol.epochs", "B"),
    ("protocol.steps_per_epoch", "B"),
    ("protocol.stopping", "B"),
    ("protocol.evaluate_every", "B"),
    ("protocol.evaluate_unit", "B"),
    ("search", "B"),
    ("space", "B"),
    ("protocol", "P"),
    ("backbone", "W"),
)
MOST_NAMED = 6  # options of one kind that a mark names; more are counted


@dataclass(frozen=True)
class Caveat:
    """One reason for care.

    Attributes:
        code: a key of `MEANING`.
        detail: which options, from what to what.
    """

    code: str
    detail: str = ""

    @property
    def blocks(self) -> bool:
        """Whether it forbids the comparison with printed numbers."""
        return MEANING[self.code][1]

    def __str__(self) -> str:
        return f"{MEANING[self.code][0]}: {self.detail}" if self.detail else MEANING[self.code][0]


def marks(group: Group, cell: Mapping[str, Any] | None, no_cells: bool = False) -> list[Caveat]:
    """The marks of a row, in the order of `MEANING`.

    Args:
        group: its runs.
        cell: options of the experiment's cell that it belongs to; None if there is none.
        no_cells: runs outside experiments, which are never compared with printed numbers anyway.
    """
    found = [Caveat("S")] if group.stand_in else []
    if cell is not None:
        found += differences(group.options, cell)
    elif not no_cells and not group.stand_in:
        found.append(Caveat("X"))
    found += _provenance(group)
    return sorted(found, key=lambda mark: list(MEANING).index(mark.code))


def differences(options: Mapping[str, Any], cell: Mapping[str, Any]) -> list[Caveat]:
    """One mark per kind of option in which a run differs from the cell it belongs to."""
    of_kind: dict[str, list[str]] = {}
    for name in differing([options, cell]):
        change = f"{name}={shown(options.get(name))} instead of {shown(cell.get(name))}"
        of_kind.setdefault(_kind(name), []).append(change)
    return [Caveat(code, _some(changes)) for code, changes in of_kind.items()]


def fewer_repeats(repeats: int, printed: PublishedResult | None) -> list[Caveat]:
    """A mark if the paper says that it repeated more often."""
    if printed is None or printed.runs is None or repeats >= printed.runs:
        return []
    return [Caveat("R", f"{repeats} instead of {printed.runs}")]


def others_number(printed: PublishedResult | None) -> list[Caveat]:
    """A mark if the paper has the number from elsewhere, where settings may differ."""
    if printed is None or printed.origin == "own":
        return []
    return [Caveat("Q", {"quoted": "quoted", "unclear": "not said who ran it"}[printed.origin])]


def _kind(name: str) -> str:
    return next((code for prefix, code in KINDS if f"{name}.".startswith(f"{prefix}.")), "O")


def _some(changes: Sequence[str]) -> str:
    more = len(changes) - MOST_NAMED
    return ", ".join(changes[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _provenance(group: Group) -> Iterator[Caveat]:
    summaries = [run.summary for run in group.runs]
    revisions = sorted({str(s.get("git_revision") or "unknown") for s in summaries})
    if any(revision.endswith("+") or revision == "unknown" for revision in revisions):
        yield Caveat("C", ", ".join(revisions))
    mixed = [
        name
        for name in ("git_revision", "versions", "device", "precision")
        if any(s.get(name) != summaries[0].get(name) for s in summaries)
    ]
    if mixed:
        yield Caveat("M", ", ".join(mixed))
