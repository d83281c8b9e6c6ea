"""The page and the pictures of a study, from its declaration and its tables alone."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Template

from dml.core.atomic_io import write_text
from dml.core.outputs import begins_with, check_output
from dml.runs.figures.drawing import BLUE, GREY, plt, tidy
from scripts.docs.markdown import code, table
from studies.comparison import page as comparison
from studies.pictures import save_small
from studies.reality_check.declaration import Declaration
from studies.reality_check.ranking_table import COLUMNS, write_ranking
from studies.reality_check.statistics import (
    choose_lengths,
    compare,
    describe_rank,
    describe_unlearned,
    judge_claims,
    rank_arms,
    search_noise,
)
from studies.reality_check.trainings import Results

TEMPLATE = Path(__file__).with_name("page.md.jinja")


PICTURES = ("ranking", "curves", "summary", "claims")


def check_page(folder: Path, name: str, start: str) -> None:
    """Checks that a page, its pictures and its tables may be written.

    Args:
        folder, name: see `write_page`.
        start: of the first line of such a page.

    Raises:
        UserError: a file of somebody else is in their place.
    """
    comparison.check_page(folder, name, start, PICTURES)
    ranking_start = begins_with(",".join(COLUMNS))
    check_output(folder / name / "ranking.csv", "page", (), ranking_start)


def write_page(
    study: Declaration, results: Results, folder: Path, name: str, checked_loss: str = ""
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Writes `<name>.md`, and its pictures and ranking into `<name>/`; returns ranking and claims.

    The pictures are `ranking`, `curves` and `claims`. A ranking of more than twelve arms has a
    `summary` too, of the best arm, the reference, and the arms of the claims.

    Args:
        study: its declaration.
        results: of all its arms.
        folder: of the page.
        name: of the page.
        checked_loss: the command that repeats the row of a user's loss, which no declaration has.
    """
    ranking = rank_arms(study, results)
    judged = judge_claims(study, results, ranking)
    pictures = folder / name
    pictures.mkdir(parents=True, exist_ok=True)
    write_ranking(study, results, ranking, pictures / "ranking.csv")
    draw_ranking(study, ranking, pictures / "ranking.png")
    draw_curves(results, pictures / "curves.png")
    if len(ranking) > 12:
        shown = {ranking.arm.iloc[0], study.reference, *study.claimed()}
        draw_ranking(study, ranking[ranking.arm.isin(shown)], pictures / "summary.png")
    if not judged.empty:
        draw_claims(study, judged, pictures / "claims.png")
    images, scores = results.images(), results.scores
    template = Template(TEMPLATE.read_text("utf-8"), trim_blocks=True)
    text = template.render(
        study=study,
        name=name,
        checked_loss=checked_loss,
        ranking_table=_ranking_table(study, ranking, results),
        lengths=_lengths(results),
        claims_table="" if judged.empty else _claims_table(judged, results),
        untrained_arms=_list_untrained_arms(study, ranking),
        options_table=_options_table(study, results),
        untrained=ranking.untrained.mean(),
        repeats=scores.repeat.nunique(),
        folds=scores.fold.nunique(),
        interval=f"{results.curves.step[results.curves.step > 0].min():.0f}",
        trials=results.trials.groupby("arm").size().max(),
        confidence=f"{study.confidence:.0%}",
        same=_same(study, results),
        noise=search_noise(study, results),
        images=images.sum(),
        classes=len(images),
        declared=", ".join(map(code, scores.declared.unique())),
        revisions=", ".join(map(code, scores.revision.str[:12].unique())),
        devices="; ".join(sorted(scores.device.unique())),
        versions="; ".join(sorted(scores.versions.unique())),
        hours=scores.groupby(["arm", "epochs"]).core_seconds.first().sum() / 3600,
    )
    write_text(folder / f"{name}.md", text.rstrip() + "\n")
    return ranking, judged


def _list_untrained_arms(study: Declaration, ranking: pd.DataFrame) -> list[str]:
    trained = set(ranking.arm)
    return [arm for arm in study.arms if arm not in trained]


def _same(study: Declaration, results: Results) -> str:
    difference = compare(results.of_length(choose_lengths(results)).class_scores(), *study.same)
    low, high = difference.interval(study.confidence)
    interval = f"{study.confidence:.0%} interval {low:+.2f} to {high:+.2f}"
    text = f"{difference.points:+.2f} points, {interval}"
    is_within = max(-low, high) < study.margin
    text += ", within the margin" if is_within else ", **not within** the margin"
    if low * high > 0:
        text += "; it excludes 0: intervals do not cover the noise of a search"
    return text


def _lengths(results: Results) -> list[str]:
    """Returns the lengths of training in steps, such as `1,000`."""
    return [f"{steps:,.0f}" for steps in results.scores.groupby("epochs").steps.max()]


def _ranking_table(study: Declaration, ranking: pd.DataFrame, results: Results) -> str:
    means = results.scores.groupby(["arm", "epochs"]).map_at_r.mean().unstack()
    rows = []
    for row in ranking.itertuples():
        interval = f"{row.low:.2f} to {row.high:.2f}"
        if row.low == row.high:
            interval = "reference"
        cells = [code(row.arm), f"{row.map_at_r:.2f}", interval, describe_rank(row)]
        cells += [f"{row.precision_at_1:.2f}", f"{row.steps:,.0f}"]
        cells += map("{:.2f}".format, means.loc[row.arm])
        cells.append(_remarks(study, row))
        rows.append(cells)
    columns = ["arm", "MAP@R", "interval", "ranks", "P@1", "steps"]
    columns += map("{} steps".format, _lengths(results))
    return table([*columns, "remarks"], rows)


def _claims_table(claims: pd.DataFrame, results: Results) -> str:
    rows = []
    for row in claims.itertuples():
        claim = f"{code(row.better)} above {code(row.than)} ({row.source})"
        p = "< 0.001"
        if row.p >= 0.001:
            p = f"{row.p:.3f}"
        interval = f"{row.low:+.2f} to {row.high:+.2f}"
        cells = [claim, f"{row.points:+.2f}", interval, p, f"**{row.verdict}**"]
        cells += map("{:+.2f}".format, row.lengths)
        rows.append(cells)
    columns = ["claim", "difference", "interval", "p", "verdict"]
    columns += map("{} steps".format, _lengths(results))
    return table(columns, rows)


def _options_table(study: Declaration, results: Results) -> str:
    rows = []
    trained = set(results.scores.arm)
    for arm, options in study.arms.items():
        if arm in trained:
            rows.append([code(arm), code(" ".join(options)), _chosen(results.trials, arm)])
    return table(["arm", "options", "chosen"], rows)


def _remarks(study: Declaration, row: Any) -> str:
    remarks = []
    if not row.learned:
        remarks.append(describe_unlearned(study))
    if row.stages > 1:
        remarks.append(f"{row.stages:.1f} stages")
    if row.rising:
        remarks.append("better with more steps")
    edges = ", ".join(map(code, row.edges.split()))
    if edges:
        remarks.append(f"edge of the range: {edges}")
    return ", ".join(remarks)


def _chosen(trials: pd.DataFrame, arm: str) -> str:
    trials = trials[trials.arm == arm].dropna(axis=1, how="all")
    best = trials.loc[trials.value.idxmax()].drop(["arm", "number", "state", "value"])
    return code(" ".join(f"{name}={value:.3g}" for name, value in best.items()))


def draw_ranking(study: Declaration, ranking: pd.DataFrame, path: Path) -> None:
    """Draws MAP@R of all arms with the intervals of their difference from the reference."""
    figure, axis = plt.subplots(figsize=(9, 1.2 + 0.32 * len(ranking)), layout="constrained")
    rows = ranking[::-1].reset_index(drop=True)
    axis.hlines(rows.index, rows.low, rows.high, color=BLUE, lw=3, alpha=0.4)
    axis.scatter(rows.map_at_r, rows.index, color=rows.learned.map({True: BLUE, False: GREY}))
    axis.axvline(ranking.untrained.mean(), color=GREY, ls=":", label="before training")
    reference = ranking.set_index("arm").map_at_r[study.reference]
    axis.axvline(reference, color=GREY, lw=0.8)
    names = [f"{row.arm}  ({describe_rank(row)})" for row in rows.itertuples()]
    axis.set_yticks(range(len(rows)), names)
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.set_xlabel(
        f"MAP@R on unseen classes (%), {study.confidence:.0%} intervals of the difference from "
        f"{study.reference}\nin brackets: possible ranks; gray: "
        f"{describe_unlearned(study)}"
    )
    axis.legend(frameon=False)
    tidy(axis)
    save_small(figure, path)


def draw_curves(results: Results, path: Path) -> None:
    """Draws the validation scores of each arm over the steps of its trainings."""
    arms = list(results.scores.arm.unique())
    rows = -(-len(arms) // 6)
    figure = plt.figure(figsize=(11, 0.8 + 1.5 * rows), layout="constrained")
    axes = figure.subplots(rows, min(6, len(arms)), sharex=True, sharey=True, squeeze=False)
    for axis, arm in itertools.zip_longest(axes.flat, arms):
        tidy(axis)
        if arm is None:
            axis.axis("off")
            continue
        curves = results.curves[results.curves.arm == arm]
        for (_, curve), color in zip(curves.groupby("epochs"), (GREY, BLUE), strict=False):
            axis.plot(curve.step, curve.validation, "o-", ms=2, color=color)
        axis.set_title(arm, fontsize=9)
    lengths = "gray: training runs of {} steps, blue: of {}".format(*_lengths(results))
    figure.supxlabel(f"step ({lengths})", fontsize=11)
    figure.supylabel("validation MAP@R (%)", fontsize=11)
    save_small(figure, path)


def draw_claims(study: Declaration, claims: pd.DataFrame, path: Path) -> None:
    """Draws the differences of the claims with their simultaneous intervals (a forest plot)."""
    figure, axis = plt.subplots(figsize=(9, 1.2 + 0.4 * len(claims)), layout="constrained")
    axis.axvspan(-study.margin, study.margin, color=GREY, alpha=0.15, label="margin of equivalence")
    axis.axvline(0, color=GREY, lw=0.8)
    rows = claims[::-1].reset_index(drop=True)
    axis.hlines(rows.index, rows.low, rows.high, color=BLUE, lw=2)
    axis.scatter(rows.points, rows.index, color=BLUE)
    names = [f"{row.better} minus {row.than}: {row.verdict}" for row in rows.itertuples()]
    axis.set_yticks(range(len(rows)), names)
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.set_xlabel(f"difference in MAP@R (points), simultaneous {study.confidence:.0%} intervals")
    axis.legend(frameon=False)
    tidy(axis)
    save_small(figure, path)
