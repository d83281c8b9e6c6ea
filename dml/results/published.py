"""Results as printed in the papers, and the papers' significance marks: `papers/*.csv`.

A published result that no experiment runs has its reason in `out_of_scope.csv`, a cell of an
experiment that no paper prints in `not_printed.csv`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from operator import itemgetter

from dml.core.statistics import Moments, std_of_half_width, t_half_width

ORIGINS = ("own", "unclear", "quoted")  # of two rows for the same key, the first of these counts
# Options of `loss=` whose published ids differ.
LOSS_NAMES = {
    "mf_contrastive": "mfcont",
    "mf_cwms": "mfcwms",
    "mf_nca": "mfnca",
    "class_balanced_contrastive": "cbcont",
}
TITLES = {
    "mft": "Mean field theory",
    "mft_v1": "Mean field theory, first version",
    "pfml": "Potential field",
    "metrix": "It takes two to tango",
    "ccp": "Chance constraints",
    "oml": "Open Metric Learning",
}
VALIDATED = ("mlrc",)  # protocols whose epoch is selected on validation classes; others: on test
THOUSANDS = {"train_steps": 1000.0}  # metrics that are printed in thousands


@dataclass(frozen=True)
class ResultKey:
    """Setting in which a number was measured, in the ids of `papers/results.csv`.

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

    @property
    def measured(self) -> tuple[str, str, str]:
        """What a run and a cell of an experiment have in common, also with other options."""
        return self.data, self.method, self.setting


@dataclass(frozen=True)
class PublishedResult:
    """One number printed in a paper.

    Attributes:
        source, table: the paper and its table.
        text, spread_text: the number and what follows its ±, digit for digit.
        spread_kind: meaning of the ±: `ci95` | `std` | `unstated` | `none`.
        runs: number of repeats, where the paper states it.
        origin: `own` | `quoted` | `unclear`.
        line: line number in `results.csv`, which identifies it.
        unit: value of the last printed digit: 0.1, or 1000 for steps printed as `62K`.
        setting: `key=value` joined with `;`, as in `ResultKey`.
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
    setting: str = ""

    @property
    def value(self) -> float:
        """The number."""
        return float(self.text)

    @property
    def origin_in_words(self) -> str:
        """Paper and table: `Mean field theory, Table 3`, or that a paper quotes the number."""
        table = self.table
        if table[1:].isdecimal():
            table = table.replace("T", "Table ", 1)
        text = f"{TITLES.get(self.source, self.source)}, {table}"
        return f"quoted in {text}" if self.origin == "quoted" else text

    @property
    def decimals(self) -> int:
        """Number of digits after the point."""
        return len(self.text.partition(".")[2])

    @property
    def preference(self) -> tuple[int, int]:
        """Order among results for the same key: the authors' own first, then the most digits."""
        return ORIGINS.index(self.origin), -self.decimals

    @property
    def moments(self) -> Moments | None:
        """Mean, standard deviation and repeats; None where the paper does not say enough."""
        if self.spread_kind not in ("ci95", "std") or self.runs is None or self.runs < 2:
            return None
        std = float(self.spread_text)
        if self.spread_kind == "ci95":
            std = std_of_half_width(std, self.runs)
        return Moments(self.value, std, self.runs)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval as printed, or computed from a printed standard deviation.

        Where neither is printed: the range of values that round to the printed digits.
        """
        half = 0.5 * self.unit
        if self.spread_kind == "ci95":
            half = float(self.spread_text)
        elif self.moments is not None:
            half = t_half_width(self.moments.std, self.moments.n)
        return self.value - half, self.value + half

    def __str__(self) -> str:
        return f"{self.text} ± {self.spread_text}" if self.spread_text else self.text


def find_results(
    key: ResultKey, metric: str, source: str, tables: Sequence[str]
) -> list[PublishedResult]:
    """Returns the published results for a key and a metric; the first one is used in comparisons.

    What a paper leaves open (an empty column) matches everything.

    Args:
        key: what was measured.
        metric: a column `metric` of `results.csv`.
        source, tables: the paper and its tables to search.
    """
    setting = parse_setting(key.setting)
    ranked = []
    for row in rows_of("source", source, metric):
        if row["table"] not in tables or parse_setting(row["setting"]) != setting:
            continue
        if _matches(row, key):
            result = read_result(row)
            ranked.append((result.preference, tables.index(result.table), result))
    ranked.sort(key=itemgetter(0, 1))
    return [result for _, _, result in ranked]


def published_significance(key: ResultKey, against: ResultKey, metric: str, source: str) -> str:
    """Returns the paper's significance mark of a method against another one.

    Returns:
        `above`, `below`, `overlap` (no difference), or an empty text where the paper has no mark.
    """
    if key.setting or against.setting:
        return ""
    for row in read_table("ttests.csv"):
        columns = (row["source"], row["compared_with"], row["metric"])
        if columns == (source, against.method, metric) and _matches(row, key):
            if row["significant"] != "yes":
                return "overlap"
            return "above" if row["direction"] == "up" else "below"
    return ""


def parse_setting(text: str | None) -> dict[str, str]:
    """Returns the `key=value` pairs of a setting, with `20` and `20.0` written alike."""
    pairs = {}
    for part in (text or "").split(";"):
        name, _, value = part.partition("=")
        if part.strip():
            pairs[name.strip()] = _canonical(value.strip())
    return pairs


@cache
def read_table(name: str) -> tuple[dict[str, str], ...]:
    """Returns the rows of one of `papers/*.csv`, with their line numbers as `line`."""
    lines = (files("dml.results") / "papers" / name).read_text("utf-8").splitlines()
    rows = list(csv.DictReader(lines))
    for number, row in enumerate(rows, start=2):
        row["line"] = str(number)
    return tuple(rows)


@cache
def rows_of(column: str, value: str, metric: str) -> list[dict[str, str]]:
    """Returns the rows of `results.csv` with a value in a column, and a metric."""
    rows = []
    for row in read_table("results.csv"):
        if row[column] == value and row["metric"] == metric:
            rows.append(row)
    return rows


def read_result(row: Mapping[str, str]) -> PublishedResult:
    """Returns the result of a row of `results.csv`."""
    unit = THOUSANDS.get(row["metric"]) or 10.0 ** -len(row["value"].partition(".")[2])
    printed = (row["source"], row["table"], row["value"], row["spread"], row["spread_kind"])
    runs = int(row["runs"] or 0) or None
    origin, line = row["origin"], int(row["line"])
    return PublishedResult(*printed, runs, origin, line, unit, row["setting"])


def _canonical(value: str) -> str:
    try:
        return f"{float(value):g}"
    except ValueError:
        return value


def _matches(row: dict[str, str], key: ResultKey) -> bool:
    asked = {
        "dataset": key.data,
        "backbone": key.backbone,
        "dim": row["dim"] if key.dim is None else str(key.dim),
        "protocol": key.protocol,
        "evaluation": key.evaluation,
        "method": key.method,
    }
    return all(row[name] in ("", value) for name, value in asked.items())
