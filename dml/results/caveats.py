"""Caveats of a row: reasons not to compare it with published results, or to read it with care."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dml.results.option_texts import differing_options, format_option
from dml.results.published_results import PublishedResult
from dml.results.run_groups import RunGroup


class CaveatKind(Enum):
    """Kinds of caveats, in the order in which a row shows them.

    Attributes:
        code: letter shown in tables.
        meaning: text of the legend.
        blocks: whether it rules out the comparison with published results.
    """

    STAND_IN = "S", "stand-in data", True
    DATA = "D", "data differ from the experiment's", True
    PROTOCOL = "P", "protocol differs", True
    SELECTION = "E", "epoch selected by another rule", True
    LABEL_NOISE = "N", "label noise differs", True
    BACKBONE = "W", "backbone or weights differ", True
    BUDGET = "B", "budget of epochs, steps or search trials differs", True
    OPTIONS = "O", "other options differ", True
    NO_CELL = "X", "not part of the experiment", True
    TIMES = "T", "times depend on the device and are not compared", False
    REPEATS = "R", "fewer repeats than in the paper", False
    ORIGIN = "Q", "the published result is not, or may not be, the authors' own run", False
    UNCOMMITTED = "C", "code with uncommitted changes", False
    MIXED = "M", "runs of this row differ in code, versions or device", False

    def __init__(self, code: str, meaning: str, blocks: bool) -> None:
        self.code = code
        self.meaning = meaning
        self.blocks = blocks


# Kind of caveat by option; the first matching prefix counts, `OPTIONS` if there is none.
KIND_OF_OPTION = (
    ("data.label_noise", CaveatKind.LABEL_NOISE),
    ("data.query_gallery", CaveatKind.PROTOCOL),
    ("data.name", CaveatKind.DATA),
    ("data.stand_in", CaveatKind.DATA),
    ("data.reader", CaveatKind.DATA),
    ("protocol.selected_on", CaveatKind.SELECTION),
    ("protocol.select_metric", CaveatKind.SELECTION),
    ("protocol.epochs", CaveatKind.BUDGET),
    ("protocol.steps_per_epoch", CaveatKind.BUDGET),
    ("protocol.stopping", CaveatKind.BUDGET),
    ("protocol.evaluate_every", CaveatKind.BUDGET),
    ("protocol.evaluate_unit", CaveatKind.BUDGET),
    ("search", CaveatKind.BUDGET),
    ("space", CaveatKind.BUDGET),
    ("protocol", CaveatKind.PROTOCOL),
    ("backbone", CaveatKind.BACKBONE),
)
MAX_OPTIONS = 6  # options of one kind that a caveat names; the others are counted


@dataclass(frozen=True)
class Caveat:
    """One caveat.

    Attributes:
        kind: kind of caveat.
        detail: the options that differ and their values, or what else is known.
    """

    kind: CaveatKind
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind.meaning}: {self.detail}" if self.detail else self.kind.meaning


def blocks_comparison(caveats: Sequence[Caveat]) -> bool:
    """Returns whether a row with these caveats must not be compared with published results."""
    return any(caveat.kind.blocks for caveat in caveats)


def list_caveats(
    group: RunGroup, cell_options: Mapping[str, Any] | None, in_experiment: bool = True
) -> list[Caveat]:
    """Returns the caveats of a group of runs, in the order of `CaveatKind`.

    Args:
        group: the runs.
        cell_options: options of the experiment's cell that they belong to; None if there is none.
        in_experiment: False for runs of no experiment, which have no cells.
    """
    found = [Caveat(CaveatKind.STAND_IN)] if group.stand_in else []
    if cell_options is not None:
        found += option_caveats(group.options, cell_options)
    elif in_experiment and not group.stand_in:
        found.append(Caveat(CaveatKind.NO_CELL))
    found += _provenance_caveats(group)
    return sorted(found, key=lambda caveat: list(CaveatKind).index(caveat.kind))


def option_caveats(options: Mapping[str, Any], cell_options: Mapping[str, Any]) -> list[Caveat]:
    """Returns one caveat per kind of option in which runs differ from their cell."""
    changes: dict[CaveatKind, list[str]] = {}
    for name in differing_options([options, cell_options]):
        value, expected = (format_option(of.get(name)) for of in (options, cell_options))
        changes.setdefault(_kind(name), []).append(f"{name}={value} instead of {expected}")
    return [Caveat(kind, _join(texts)) for kind, texts in changes.items()]


def repeat_caveats(repeats: int, published: PublishedResult | None) -> list[Caveat]:
    """Returns a caveat if the paper states more repeats."""
    if published is None or published.runs is None or repeats >= published.runs:
        return []
    return [Caveat(CaveatKind.REPEATS, f"{repeats} instead of {published.runs}")]


def origin_caveats(published: PublishedResult | None) -> list[Caveat]:
    """Returns a caveat if the result is not the authors' own, since settings may differ."""
    if published is None or published.origin == "own":
        return []
    detail = {"quoted": "quoted", "unclear": "the paper does not say who ran it"}
    return [Caveat(CaveatKind.ORIGIN, detail[published.origin])]


def _kind(option: str) -> CaveatKind:
    kinds = (kind for prefix, kind in KIND_OF_OPTION if f"{option}.".startswith(f"{prefix}."))
    return next(kinds, CaveatKind.OPTIONS)


def _join(texts: Sequence[str]) -> str:
    more = len(texts) - MAX_OPTIONS
    return ", ".join(texts[:MAX_OPTIONS]) + (f" and {more} more" if more > 0 else "")


def _provenance_caveats(group: RunGroup) -> Iterator[Caveat]:
    summaries = [run.summary for run in group.runs]
    revisions = sorted({str(s.get("git_revision") or "unknown") for s in summaries})
    if any(revision.endswith("+") or revision == "unknown" for revision in revisions):
        yield Caveat(CaveatKind.UNCOMMITTED, ", ".join(revisions))
    mixed = [
        name
        for name in ("git_revision", "versions", "device", "precision")
        if any(s.get(name) != summaries[0].get(name) for s in summaries)
    ]
    if mixed:
        yield Caveat(CaveatKind.MIXED, ", ".join(mixed))
