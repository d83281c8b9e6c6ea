"""The ranking of a comparison as a table, `ranking.csv`, for pages of losses and the leaderboard.

A row per arm. Columns:

title, data, network, protocol, scores   of the comparison: its page's title and what was trained
arm, choices                             name, and its loss and method: `loss=ms method=metrix`
map_at_r, precision_at_1                 mean over searches in percent
map_at_r_half                            half-width of the 95 % interval of a new search
searches, ranks, arms                    number of searches; possible ranks among so many arms
remarks                                  what to know of the arm; may be empty
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from dml.core.atomic_io import write_text
from studies.comparison.declaration import Declaration
from studies.comparison.results import Results
from studies.comparison.statistics import describe_rank

COLUMNS = (
    *("title", "data", "network", "protocol", "scores", "arm", "choices"),
    *("map_at_r", "map_at_r_half", "precision_at_1"),
    *("searches", "ranks", "arms", "remarks"),
)


def write_ranking(study: Declaration, results: Results, ranking: pd.DataFrame, path: Path) -> None:
    """Writes the table of a ranking.

    Args:
        study: its declaration.
        results: of its arms.
        ranking: of `Comparison.rank_arms`.
        path: of the CSV.
    """
    about = _describe_study(study, results)
    rows = []
    for row in ranking.itertuples():
        choices = [word for word in study.arms[row.arm] if word.startswith(("loss=", "method="))]
        rows.append(
            {
                **about,
                "arm": row.arm,
                "choices": " ".join(choices),
                "map_at_r": row.map_at_r,
                "map_at_r_half": row.half,
                "precision_at_1": row.precision_at_1,
                "searches": row.searches,
                "ranks": describe_rank(row.rank_low, row.rank_high),
                "arms": len(ranking),
                "remarks": "; ".join(list_remarks(row)),
            }
        )
    table = pd.DataFrame(rows, columns=COLUMNS)
    write_text(path, table.to_csv(index=False, lineterminator="\n", float_format="%.8g"))


def list_remarks(row: Any) -> list[str]:
    """Returns what restricts the result of an arm, from its row of `Comparison.rank_arms`.

    Options are in backticks.
    """
    remarks = []
    if not row.complete:
        remarks.append("not finished")
    if row.failed:
        remarks.append("search failed")
    if row.rising:
        remarks.append("still rising")
    if row.edges:
        options = ", ".join(f"`{option}`" for option in row.edges.split())
        remarks.append(f"end of its range: {options}")
    return remarks


def _describe_study(study: Declaration, results: Results) -> dict[str, str]:
    """Returns the columns that are the same for all arms of a comparison."""
    words = [*study.options, *study.features.replace("timm:", "model=").split()]
    options = {}
    for word in words:
        name, _, value = word.rpartition("=")
        options[name] = value  # the last of each name counts
    if study.features:
        head = "MLP head" if "embedder.head" in options else "linear head"
        network = f"{head} on features of `{options['model']}`"
    else:
        model = options.get("backbone.model", "network of the dataset")
        network = f"fine-tuned `{model}`"
    return {
        "title": study.title,
        "data": options["data"],
        "network": network,
        "protocol": options["protocol"],
        "scores": "separated" if results.scores.fold.nunique() > 1 else "single",
    }
