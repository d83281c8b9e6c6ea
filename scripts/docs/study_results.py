"""The leaderboard, and what studies have found about each loss and method.

The tables `docs/results/<study>/ranking.csv` are written with the pages of the studies.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from dml.core.statistics import Estimate
from dml.results.frame import GROUPS, estimates, make_frame, read_runs
from scripts.docs.component_pages import render
from scripts.docs.markdown import code, table, unbroken

PAGES = Path(__file__).parents[2] / "docs" / "results"
METRICS = ("map_at_r", "precision_at_1")
COLUMNS = (
    "data",
    "network",
    "protocol",
    "scores",
    "arm or loss",
    "MAP@R",
    "P@1",
    "repeats or searches",
    "source, remarks",
)


@cache
def _read_rankings(pages: Path) -> dict[str, pd.DataFrame]:
    """Returns name → ranking of the studies with results."""
    rankings = {}
    for path in sorted(pages.glob("*/ranking.csv")):
        rankings[path.parent.name] = pd.read_csv(path, dtype={"arm": str}, keep_default_na=False)
    return rankings


def describe_findings(option: str) -> list[str]:
    """Returns what studies have found, a text for each arm.

    Args:
        option: `loss=<name>`, of arms without a method, or `method=<name>`.
    """
    texts = []
    for name, ranking in _read_rankings(PAGES).items():
        for row in ranking.itertuples():
            chosen = row.choices.split()
            has_method = len(chosen) > 1
            if option not in chosen or (option.startswith("loss=") and has_method):
                continue
            text = f"[{row.title}](../results/{name}.md), arm {code(row.arm)}"
            for other in chosen:
                if other != option:
                    text += f" with {code(other)}"
            text += f": MAP@R {row.map_at_r:.1f} %, rank {row.ranks} of {row.arms}"
            if row.remarks:
                text += f"; {row.remarks}"
            texts.append(text)
    return texts


def make_leaderboard(pages: Path = PAGES) -> dict[str, str]:
    """Returns the page of all shipped and contributed results on data that are no stand-in."""
    rows = _study_rows(pages) + _contributed_rows(pages)
    rows.sort(key=lambda row: (row[:4], -float(row[5].split()[0])))
    return {"results/leaderboard.md": render("leaderboard.md", rows=table(COLUMNS, rows))}


def _study_rows(pages: Path) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, ranking in _read_rankings(pages).items():
        for row in ranking.sort_values("arm").itertuples():
            group = (row.data, row.network, row.protocol, row.scores)
            scores = (
                _write_score(row.map_at_r, row.map_at_r_half),
                _write_score(row.precision_at_1, None),
                str(row.searches),
            )
            source = f"[{name}]({name}.md)"
            if row.remarks:
                source += f"; {row.remarks}"
            rows.append((*group, row.arm, *scores, source))
    return rows


def _contributed_rows(pages: Path) -> list[tuple[str, ...]]:
    rows = []
    for path in sorted(pages.glob("*_runs.csv")):
        frame = make_frame(read_runs(path))
        frame = frame[~frame.stand_in.astype(bool)]
        for _, runs in frame.groupby(["configuration", "evaluation"], sort=False):
            first = runs.iloc[0]
            names = {group: str(first[group]) for group in GROUPS}
            loss = names["loss"]
            if names["method"] != "plain":
                loss += f" + {names['method']}"
            group = (names["data"], names["backbone"], names["protocol"], first.evaluation)
            numbers = _write_numbers(estimates(runs, METRICS))
            rows.append((*group, loss, *numbers, f"[contributed]({path.name})"))
    return rows


def _write_numbers(estimated: dict[str, Estimate]) -> tuple[str, ...]:
    first, second = (estimated[metric] for metric in METRICS)
    return (
        _write_score(first.mean, first.ci95),
        _write_score(second.mean, second.ci95),
        str(first.n),
    )


def _write_score(mean: float, ci95: float | str | None) -> str:
    """Returns `18.49 ± 0.21`, or the mean alone where there is no interval (None or empty)."""
    if ci95 is None or ci95 == "":
        return f"{mean:.2f}"
    return unbroken(f"{mean:.2f} ± {float(ci95):.2f}")
