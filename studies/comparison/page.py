"""The page and the pictures of a comparison, from its declaration and its tables alone."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dml.core.atomic_io import write_text
from dml.core.outputs import begins_with, check_output
from dml.core.regular_files import open_regular
from dml.runs.figures.drawing import check_picture
from scripts.docs.markdown import code, table
from studies.comparison.agreement import Agreement, Correlation, find_agreement
from studies.comparison.declaration import Declaration
from studies.comparison.pictures import (
    draw_agreement,
    draw_claims,
    draw_curves,
    draw_differences,
    draw_scores,
)
from studies.comparison.ranking_table import COLUMNS, list_remarks, write_ranking
from studies.comparison.results import SUFFIX, Results
from studies.comparison.statistics import VERDICTS, Comparison, describe_rank

TEMPLATE = Path(__file__).with_name("page.md.jinja")


PICTURES = ("scores", "summary", "differences", "claims", "curves", "datasets")
MANY = 12  # arms, above which a picture of some of them is drawn too


def check_page(folder: Path, name: str, start: str) -> None:
    """Checks that a page, its pictures and its tables may be written.

    Args:
        folder, name: see `write_page`.
        start: of the first line of such a page.

    Raises:
        UserError: a file of somebody else is in their place.
    """

    def is_table(path: Path) -> bool:
        with open_regular(path) as file, lzma.open(file) as unpacked:
            return b"arm" in unpacked.readline(4096).strip().split(b",")

    check_output(folder / f"{name}.md", "page", (), begins_with(start))
    for picture in PICTURES:
        check_picture(folder / name / f"{picture}.png", "page")
    check_output(folder / name / "ranking.csv", "page", (), begins_with(",".join(COLUMNS)))
    for table_name in Results._fields:
        check_output(folder / name / f"{table_name}{SUFFIX}", "page", (), is_table)


def write_page(
    study: Declaration,
    results: Results,
    folder: Path,
    name: str,
    sibling: Comparison | None = None,
    checked_loss: str = "",
    notes: str = "",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Writes `<name>.md`, and pictures and ranking into `<name>/`; returns ranking and claims.

    Of many arms there is a picture `summary`, of the best arm, the reference and the arms of the
    claims.

    Args:
        study: its declaration.
        results: of its arms, with two searches of one of them at least.
        folder: of the page.
        name: of the page.
        sibling: the comparison of `study.compared_with`.
        checked_loss: the command that repeats the row of a user's loss, which no declaration has.
        notes: Markdown of what became known after the declaration.
    """
    comparison = Comparison(study, results)
    ranking = comparison.rank_arms()
    claims = comparison.judge_claims(ranking)
    pictures = folder / name
    pictures.mkdir(parents=True, exist_ok=True)
    write_ranking(study, results, ranking, pictures / "ranking.csv")
    draw_scores(ranking, pictures / "scores.png")
    if len(ranking) > MANY:
        shown = {ranking.arm.iloc[0], study.reference, *study.claimed()}
        draw_scores(ranking[ranking.arm.isin(shown)], pictures / "summary.png")
    draw_differences(study, ranking, pictures / "differences.png")
    draw_curves(results, pictures / "curves.png")
    if not claims.empty:
        draw_claims(study, claims, pictures / "claims.png")
    agreement, agreement_table = None, ""
    if study.compared_with and sibling:
        agreement = find_agreement(comparison, sibling, study.compared_with.without)
    if study.compared_with and agreement:
        datasets = study.dataset, study.compared_with.dataset
        agreement_table = _write_agreement(agreement, *datasets)
        draw_agreement(agreement, *datasets, study.claimed(), pictures / "datasets.png")
    scores = results.scores
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE.parent), trim_blocks=True, undefined=StrictUndefined
    )
    environment.filters |= {"arms": _list_pairs, "rho": _describe_correlation}
    text = environment.get_template(TEMPLATE.name).render(
        study=study,
        name=name,
        checked_loss=checked_loss,
        ranking_table=_write_ranking(study, ranking),
        lengths_table=_write_lengths(ranking, results),
        claims_table=_write_claims(claims, results),
        verdicts_table=_write_verdicts(study),
        agreement=agreement,
        agreement_table=agreement_table,
        options_table=_write_options(study, results),
        untrained=ranking.untrained.mean(),
        pooled=comparison.noise.pooled**0.5,
        freedom=comparison.noise.freedom,
        widest=_describe_widest(comparison),
        has_own=not ranking.is_pooled.all(),
        least_half=comparison.least_half_width(),
        repeated=_list_repeated(results),
        is_partial=not ranking.complete.all() or len(ranking) < len(study.arms),
        notes=notes,
        unstable=[code(arm) for arm in comparison.noise.unstable],
        equal=2**0.5 * comparison.noise.pooled**0.5,
        lengths=_list_lengths(results),
        trials=results.trials.groupby(_keys_of_trials(study)).size().max(),
        folds=scores.fold.nunique(),
        images=comparison.images.sum(),
        classes=len(comparison.images),
        not_trained=_list_not_trained(study, results),
        not_level=[code(arm) for arm in ranking[ranking.rising].arm],
        declared=", ".join(map(code, scores.declared.unique())),
        revisions=", ".join(map(code, scores.revision.str[:12].unique())),
        devices="; ".join(sorted(scores.device.unique())),
        versions="; ".join(sorted(scores.versions.unique())),
        hours=scores.processor_seconds.sum() / 3600,
    )
    write_text(folder / f"{name}.md", text.rstrip() + "\n")
    return ranking, claims


def _list_pairs(pairs: Sequence[tuple[str, str]]) -> str:
    """Returns pairs of arms as text, such as "`ms` above `triplet`"."""
    return ", ".join(f"{code(first)} above {code(second)}" for first, second in pairs)


def _describe_correlation(correlation: Correlation) -> str:
    """Returns a correlation with its interval as text, such as "0.85 (0.71 to 0.93)"."""
    return f"{correlation.rho:.2f} ({correlation.low:.2f} to {correlation.high:.2f})"


def _list_lengths(results: Results) -> list[str]:
    """Returns the lengths of training in steps, such as `2,000`."""
    return [f"{steps:,.0f}" for steps in results.scores.groupby("epochs").steps.max()]


def _describe_widest(comparison: Comparison) -> dict[str, Any]:
    """Returns which arms vary least and most, and what the pool would be without the latter.

    Keys: `least`, `most` (names), `least_spread`, `spread` (standard deviations), `ratio` (variance
    of `most` over that of all others; NaN if unknown) and `without` (standard deviation of a search
    without it).
    """
    noise = comparison.noise
    spreads = noise.arms.spread.dropna().sort_values()
    most = spreads.index[-1]
    return {
        "least": code(spreads.index[0]),
        "least_spread": spreads.iloc[0],
        "most": code(most),
        "spread": spreads.iloc[-1],
        "ratio": noise.arms.ratio[most],
        "without": noise.without(most) ** 0.5,
    }


def _list_repeated(results: Results) -> list[str]:
    """Returns the searches of two arms that ended in the same training run, as texts."""
    keys = ["search", "epochs", "fold"]
    scores = results.scores.set_index(keys)[["arm", "validation", "map_at_r"]].reset_index()
    pairs = scores.merge(scores, on=[*keys, "validation", "map_at_r"])
    pairs = pairs[pairs.arm_x < pairs.arm_y][["search", "arm_x", "arm_y"]].drop_duplicates()
    texts = []
    for search, first, second in pairs.itertuples(index=False):
        texts.append(f"search {search} of {code(first)} and {code(second)}")
    return texts


def _list_not_trained(study: Declaration, results: Results) -> list[str]:
    """Returns the arms that lack searches, with how many they have."""
    searches = pd.Series([arm for arm, _ in results.searches()], dtype=str).value_counts()
    texts = []
    for arm in study.arms:
        count, declared = searches.get(arm, 0), study.count_searches(arm)
        if count < declared:
            texts.append(f"{code(arm)}: {count} of {declared} searches")
    return texts


def _write_ranking(study: Declaration, ranking: pd.DataFrame) -> str:
    rows = []
    for row in ranking.itertuples():
        difference = "reference"
        if row.arm != study.reference:
            difference = f"{row.points:+.2f} ({row.low:+.2f} to {row.high:+.2f})"
        mark = "" if row.is_pooled else "\\*"
        cells = [code(row.arm), f"{row.map_at_r:.2f} ± {row.half:.2f}{mark}", str(row.searches)]
        cells += [_write_number(row.spread, ".2f"), difference]
        cells += [describe_rank(row.rank_low, row.rank_high), f"{row.precision_at_1:.2f}"]
        rows.append([*cells, _remark(row)])
    minus = f"minus {code(study.reference)}"
    return table(["arm", "MAP@R", "searches", "SD", minus, "ranks", "P@1", "remarks"], rows)


def _write_lengths(ranking: pd.DataFrame, results: Results) -> str:
    means = results.runs().map_at_r.groupby(["arm", "epochs"]).mean().unstack()
    rows = []
    for row in ranking.itertuples():
        scores = [_write_number(score, ".2f") for score in means.loc[row.arm]]
        rows.append([code(row.arm), *scores, _write_number(row.gain, "+.2f")])
    columns = ["arm", *map("{} steps".format, _list_lengths(results)), "gain"]
    return table(columns, rows)


def _remark(row: Any) -> str:
    remarks = list_remarks(row)
    if row.stages > 1:
        remarks.append(f"{row.stages:.1f} stages")
    edges = ", ".join(map(code, row.edges.split()))
    if edges:
        remarks.append(f"end of its range: {edges}")
    return ", ".join(remarks)


def _write_claims(claims: pd.DataFrame, results: Results) -> str:
    if claims.empty:
        return ""
    means = results.runs().map_at_r.groupby(["arm", "epochs"]).mean().unstack()
    rows = []
    for row in claims.itertuples():
        claim = f"{code(row.better)} above {code(row.than)} ({row.source})"
        p = "< 0.001"
        if row.p >= 0.001:
            p = f"{row.p:.3f}"
        interval = f"{row.low:+.2f} to {row.high:+.2f}"
        cells = [claim, f"{row.points:+.2f}", interval, p, f"**{row.verdict}**"]
        for points in means.loc[row.better] - means.loc[row.than]:
            cells.append(_write_number(points, "+.2f"))
        rows.append(cells)
    columns = ["claim", "difference", "interval", "p", "verdict"]
    columns += map("{} steps".format, _list_lengths(results))
    return table(columns, rows)


def _write_agreement(agreement: Agreement, here: str, there: str) -> str:
    rows = []
    for row in agreement.claims.itertuples():
        rows.append([f"{code(row.better)} above {code(row.than)}", row.there, row.here])
    return table(["claim", f"with {there}", f"with {here}"], rows)


def _write_number(number: float, form: str) -> str:
    """Returns a number as text; a dash where it is not known."""
    return "–" if pd.isna(number) else format(number, form)  # noqa: RUF001


def _write_verdicts(study: Declaration) -> str:
    rows = []
    for verdict, when in VERDICTS.items():
        if verdict == "equivalent" and study.margin is None:
            continue
        name = verdict
        if verdict == "equivalent":
            name = f"equivalent (±{study.margin:g})"
        values = {"plateau": f"{study.plateau:g}", "margin": f"{study.margin}"}
        rows.append([f"*{name}*", when.format(**values)])
    return table(["verdict", "when"], rows)


def _write_options(study: Declaration, results: Results) -> str:
    rows = []
    trials = results.trials
    for arm, options in study.arms.items():
        of_arm = trials[trials.arm == arm]
        chosen = []
        for key, search in of_arm.groupby(_keys_of_trials(study)[1:]):
            label = f"{key[1]} epochs: " if study.search_each_length else ""
            chosen.append(f"{label}{_describe_best(search)}")
        if chosen:
            rows.append([code(arm), code(" ".join(options)), "<br>".join(chosen)])
    return table(["arm", "options", "values that each search chose"], rows)


def _keys_of_trials(study: Declaration) -> list[str]:
    """Returns the columns that name the trials of which the best one was trained."""
    return ["arm", "search", "epochs"] if study.search_each_length else ["arm", "search"]


def _describe_best(trials: pd.DataFrame) -> str:
    trials = trials.dropna(axis=1, how="all")
    best = trials.loc[trials.value.idxmax()]
    best = best.drop(["arm", "search", "epochs", "number", "state", "value"], errors="ignore")
    return code(" ".join(f"{name}={value:.3g}" for name, value in best.items()))
