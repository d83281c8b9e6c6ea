"""The numbers that the papers print, and their significance marks: `results/*.csv`."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from dml.core.statistics import Moments, std_of_half_width, t_half_width

ORIGINS = ("own", "unclear", "quoted")  # of two rows for the same cell the first of these counts
THOUSANDS = {"train_steps": 1000.0}  # metrics that are printed in thousands


@dataclass(frozen=True)
class ResultKey:
    """What a number was measured on, by the ids of the tables of printed results.

    Attributes:
        data, backbone, protocol, method: ids; `protocol` includes label noise.
        dim: embedding size of each model; None for the backbone's own.
        evaluation: `single` | `separated` | `concatenated`.
        setting: `key=value` joined with `;`, empty if nothing else varies.
    """

    data: str
    backbone: str
    dim: int | None
    protocol: str
    evaluation: str
    method: str
    setting: str = ""


@dataclass(frozen=True)
class PublishedResult:
    """One printed number.

    Attributes:
        source, table: paper and its table.
        text, spread_text: the number and what follows its ±, as printed; digits tell the rounding.
        spread_kind: what the ± is: `ci95` | `std` | `unstated` | `none`.
        runs: repeats, where the paper states them.
        origin: `own` | `quoted` | `unclear`.
        line: of `results.csv`, which tells it from all others.
        unit: what the last printed digit counts: 0.1, or 1000 for steps printed as `62K`.
    """

    source: str
    table: str
    text: str
    spread_text: str
    spread_kind: str
    runs: int | None
    origin: str
    line: int
    unit: float

    @property
    def value(self) -> float:
        """The number."""
        return float(self.text)

    @property
    def spread(self) -> float | None:
        """What is printed after ±."""
        return float(self.spread_text) if self.spread_text else None

    @property
    def decimals(self) -> int:
        """Digits after the point."""
        return len(self.text.partition(".")[2])

    @property
    def moments(self) -> Moments | None:
        """Mean, standard deviation and repeats; None where the paper does not say enough."""
        if self.spread is None or self.runs is None or self.runs < 2:
            return None
        if self.spread_kind == "ci95":
            return Moments(self.value, std_of_half_width(self.spread, self.runs), self.runs)
        return Moments(self.value, self.spread, self.runs) if self.spread_kind == "std" else None

    @property
    def interval(self) -> tuple[float, float]:
        """The printed 95 % interval, or the one that follows from a standard deviation.

        Where there is neither, the range that rounds to the printed digits.
        """
        if self.spread_kind == "ci95" and self.spread is not None:
            half = self.spread
        elif self.moments is not None:
            half = t_half_width(self.moments.std, self.moments.n)
        else:
            half = 0.5 * self.unit
        return self.value - half, self.value + half

    def __str__(self) -> str:
        return f"{self.text} ± {self.spread_text}" if self.spread_text else self.text


def printed(
    facts: ResultKey, metric: str, source: str, tables: Sequence[str]
) -> PublishedResult | None:
    """The number that some tables of a paper print for a metric; None if they do not."""
    return next(iter(fitting(facts, metric, source, tables)), None)


def fitting(
    facts: ResultKey, metric: str, source: str, tables: Sequence[str]
) -> list[PublishedResult]:
    """All printed numbers that fit, the one that counts first.

    What a paper leaves open (an empty cell) fits everything. Of several the authors' own run
    counts, then the one with the most digits, then the first table.
    """
    found = [
        _printed(row)
        for row in printed_rows()
        if row["source"] == source
        and row["table"] in tables
        and row["metric"] == metric
        and _fits(row, facts)
        and settings(row["setting"]) == settings(facts.setting)
    ]
    return sorted(
        found, key=lambda one: (ORIGINS.index(one.origin), -one.decimals, tables.index(one.table))
    )


def significance(facts: ResultKey, against: str, metric: str, source: str) -> str | None:
    """The paper's mark for `facts.method` against another method.

    Returns:
        `better`, `worse`, `no difference`, or None where the paper has no mark.
    """
    for row in _marks():
        if (row["source"], row["compared_with"], row["metric"]) == (source, against, metric) and (
            _fits(row, facts) and not facts.setting
        ):
            if row["significant"] == "no":
                return "no difference"
            return "better" if row["direction"] == "up" else "worse"
    return None


def settings(text: str | None) -> dict[str, str]:
    """`key=value` pairs, numbers in one way of writing: `alpha=20` is `alpha=20.0`."""
    pairs = (part.partition("=") for part in (text or "").split(";") if part.strip())
    return {key.strip(): _canonical(value.strip()) for key, _, value in pairs}


def _canonical(value: str) -> str:
    try:
        return f"{float(value):g}"
    except ValueError:
        return value


def _fits(row: dict[str, str], facts: ResultKey) -> bool:
    wanted = {
        "dataset": facts.data,
        "backbone": facts.backbone,
        "dim": row["dim"] if facts.dim is None else str(facts.dim),
        "protocol": facts.protocol,
    }
    return (
        row["method"] == facts.method
        and row["evaluation"] == facts.evaluation
        and all(row[column] in ("", value) for column, value in wanted.items())
    )


def _printed(row: dict[str, str]) -> PublishedResult:
    return PublishedResult(
        source=row["source"],
        table=row["table"],
        text=row["value"],
        spread_text=row["spread"],
        spread_kind=row["spread_kind"],
        runs=int(row["runs"]) if row["runs"] else None,
        origin=row["origin"],
        line=int(row["line"]),
        unit=THOUSANDS.get(row["metric"]) or 10.0 ** -len(row["value"].partition(".")[2]),
    )


@cache
def printed_rows() -> tuple[dict[str, str], ...]:
    """The lines of `results.csv`, with their numbers in the file as `line`."""
    return tuple({**row, "line": str(2 + n)} for n, row in enumerate(read_table("results.csv")))


@cache
def _marks() -> tuple[dict[str, str], ...]:
    return tuple(read_table("ttests.csv"))


def read_table(name: str) -> Iterator[dict[str, str]]:
    """The lines of one of `results/*.csv`, column → text."""
    text = (files("dml.reporting") / "results" / name).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())
