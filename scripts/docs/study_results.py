"""The leaderboard, and what studies have found about each loss and method."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from dml.core.statistics import Estimate
from dml.results.frame import GROUPS, estimates, make_frame, read_runs
from scripts.docs.component_pages import render
from scripts.docs.markdown import code, table
from studies.reality_check.declaration import Declaration, read_declaration
from studies.reality_check.statistics import (
    choose_lengths,
    describe_rank,
    describe_unlearned,
    rank_arms,
)
from studies.reality_check.trainings import Results

STUDIES = Path(__file__).parents[2] / "studies"
PAGES = Path(__file__).parents[2] / "docs" / "results"
METRICS = ("map_at_r", "precision_at_1")
COLUMNS = ("data", "network", "protocol", "scores", "loss", "MAP@R", "P@1", "repeats", "source")


@cache
def _read_studies(pages: Path) -> dict[str, tuple[Declaration, Results, pd.DataFrame]]:
    """Returns name → declaration, results and ranking of the studies with results."""
    found = {}
    for path in sorted(pages.glob("*/scores.csv")):
        name = path.parent.name
        study = read_declaration(STUDIES / name / "declaration.yaml")
        results = Results.read(path.parent)
        found[name] = study, results, rank_arms(study, results).set_index("arm")
    return found


def describe_findings(option: str) -> list[str]:
    """Returns what studies have found, a text for each arm.

    Args:
        option: `loss=<name>`, of arms without a method, or `method=<name>`.
    """
    texts = []
    for name, (study, _, ranking) in _read_studies(PAGES).items():
        for arm, row in ranking.drop(index=study.same[1]).iterrows():
            chosen = [one for one in study.arms[arm] if one.startswith(("loss=", "method="))]
            if option not in chosen or (option.startswith("loss=") and len(chosen) > 1):
                continue
            others = "".join(f" with {code(one)}" for one in chosen if one != option)
            texts.append(
                f"[{study.title}](../results/{name}.md){others}: MAP@R {row.map_at_r:.1f} %, "
                f"rank {describe_rank(row)} of {len(ranking)}"
                + ("" if row.learned else f"; {describe_unlearned(study)} in these settings")
                + ("; better with more steps" if row.rising else "")
            )
    return texts


def make_leaderboard(pages: Path = PAGES) -> dict[str, str]:
    """Returns the page of all shipped and contributed results on data that are no stand-in."""
    rows = [*_study_rows(pages), *_contributed_rows(pages)]
    rows.sort(key=lambda row: (row[:4], -float(row[5].split()[0])))
    return {"results/leaderboard.md": render("leaderboard.md", rows=table(COLUMNS, rows))}


def _study_rows(pages: Path) -> list[tuple[str, ...]]:
    rows = []
    for name, (study, results, _) in _read_studies(pages).items():
        words = [*study.options, *(study.features or "").replace("timm:", "model=").split()]
        option = dict(word.rpartition("=")[::2] for word in words)  # the last of each name counts
        head = "MLP head" if "embedder.head" in option else "linear head"
        network = f"fine-tuned `{option.get('backbone.model')}`"
        if study.features:
            network = f"{head} on features of `{option['model']}`"
        scores_of = "separated" if results.scores.fold.nunique() > 1 else "single"
        place = (option["data"], network, option["protocol"], scores_of)
        chosen = results.of_length(choose_lengths(results)).scores  # as on the page of the study
        for arm, scores in chosen[chosen.arm != study.same[1]].groupby("arm"):
            repeats = scores.groupby("repeat")[list(METRICS)].mean()
            found = {metric: Estimate(tuple(repeats[metric])) for metric in METRICS}
            rows.append((*place, str(arm), *_numbers(found), f"[{name}]({name}.md)"))
    return rows


def _contributed_rows(pages: Path) -> list[tuple[str, ...]]:
    rows = []
    for path in sorted(pages.glob("*_runs.csv")):
        frame = make_frame(read_runs(path))
        frame = frame[~frame.stand_in.astype(bool)]
        for _, runs in frame.groupby(["configuration", "evaluation"], sort=False):
            names = {group: str(runs[group].iloc[0]) for group in GROUPS}
            method = "" if names["method"] == "plain" else f" + {names['method']}"
            place = (names["data"], names["backbone"], names["protocol"], runs.evaluation.iloc[0])
            found = estimates(runs, METRICS)
            source = f"[contributed]({path.name})"
            rows.append((*place, names["loss"] + method, *_numbers(found), source))
    return rows


def _numbers(found: dict[str, Estimate]) -> tuple[str, ...]:
    texts = [
        f"{one.mean:.2f}" + ("" if one.ci95 is None else f" ± {one.ci95:.2f}")
        for one in (found[metric] for metric in METRICS)
    ]
    return *texts, str(found[METRICS[0]].n)
