"""The ranking of a study as a table, `ranking.csv`, for the pages of losses and the leaderboard.

A row per arm, without the second of the two equal arms. Columns:

title, data, network, protocol, scores   of the study: its page's title and what was trained
arm, choices                             name, and its loss and method: `loss=ms method=metrix`
map_at_r, precision_at_1                 mean over repeats in percent
map_at_r_ci95, precision_at_1_ci95       half-width of its 95 % interval; empty for one repeat
repeats, ranks, arms                     number of repeats; possible ranks among so many arms
remarks                                  what to know of the arm; may be empty
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from dml.core.atomic_io import write_text
from dml.core.statistics import Estimate
from studies.reality_check.declaration import Declaration
from studies.reality_check.statistics import choose_lengths, describe_rank, describe_unlearned
from studies.reality_check.trainings import METRICS, Results

SCORES = METRICS[:2]
COLUMNS = (
    *("title", "data", "network", "protocol", "scores", "arm", "choices"),
    *("map_at_r", "map_at_r_ci95", "precision_at_1", "precision_at_1_ci95"),
    *("repeats", "ranks", "arms", "remarks"),
)


def write_ranking(study: Declaration, results: Results, ranking: pd.DataFrame, path: Path) -> None:
    """Writes the table of a ranking.

    Args:
        study: its declaration.
        results: of all arms.
        ranking: of `rank_arms`.
        path: of the CSV.
    """
    chosen = results.of_length(choose_lengths(results)).scores
    about = _describe_study(study, results)
    rows = []
    for row in ranking.itertuples():
        if row.arm == study.same[1]:
            continue
        numbers = _average_repeats(chosen[chosen.arm == row.arm])
        place = {"ranks": describe_rank(row), "arms": len(ranking)}
        arm = {"arm": row.arm, "choices": " ".join(_list_choices(study, row.arm))}
        rows.append({**about, **arm, **numbers, **place, "remarks": _remark(study, row)})
    table = pd.DataFrame(rows, columns=COLUMNS)
    write_text(path, table.to_csv(index=False, lineterminator="\n", float_format="%.8g"))


def _describe_study(study: Declaration, results: Results) -> dict[str, str]:
    """Returns the columns that are the same for all arms of a study."""
    words = list(study.options)
    if study.features:
        words += study.features.replace("timm:", "model=").split()
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


def _list_choices(study: Declaration, arm: str) -> list[str]:
    return [word for word in study.arms[arm] if word.startswith(("loss=", "method="))]


def _average_repeats(scores: pd.DataFrame) -> dict[str, Any]:
    """Returns means with their intervals, from a row for each model of an arm."""
    repeats = scores.groupby("repeat")[list(SCORES)].mean()
    numbers: dict[str, Any] = {}
    for metric in SCORES:
        estimate = Estimate(tuple(repeats[metric]))
        numbers[metric] = estimate.mean
        numbers[f"{metric}_ci95"] = estimate.ci95
    numbers["repeats"] = len(repeats)
    return numbers


def _remark(study: Declaration, row: Any) -> str:
    remarks = []
    if not row.learned:
        remarks.append(f"{describe_unlearned(study)} in these settings")
    if row.rising:
        remarks.append("better with more steps")
    return "; ".join(remarks)
