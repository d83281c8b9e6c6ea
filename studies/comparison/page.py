"""The page and the pictures of a comparison, from its declaration and its tables alone."""

from __future__ import annotations

import lzma
import re
from collections.abc import Sequence
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from dml.core.atomic_io import write_text
from dml.core.outputs import begins_with, check_output
from dml.core.regular_files import open_regular
from dml.runs.figures.drawing import check_picture
from scripts.docs.markdown import code
from studies.comparison import page_tables
from studies.comparison.agreement import Correlation, find_agreement
from studies.comparison.declaration import Declaration
from studies.comparison.findings import (
    count_lengths,
    count_shared_verdicts,
    list_dependent_claims,
    summarize_claims,
)
from studies.comparison.pictures import (
    draw_agreement,
    draw_claims,
    draw_curves,
    draw_differences,
    draw_scores,
)
from studies.comparison.ranking_table import COLUMNS, write_ranking
from studies.comparison.results import Results
from studies.comparison.sensitivity import (
    EXPLANATIONS,
    FEW_SEARCHES,
    OWN_VARIANCES,
    find_sensitive_claims,
)
from studies.comparison.statistics import LEAST, Comparison
from studies.comparison.table_files import SUFFIX
from studies.comparison.variation import (
    find_largest_share,
    find_range,
    pool_gain_error,
    pool_spread,
    spread_interval,
)

TEMPLATES = Path(__file__).parent
PICTURES = ("scores", "summary", "differences", "claims", "curves", "datasets")
INTRODUCTION = 700  # characters of a question that stand above the results
MANY = 12  # arms, above which a picture of some of them is drawn too


def check_page(folder: Path, name: str, *titles: str) -> None:
    """Checks that a page, its pictures and its tables may be written.

    Args:
        folder, name: see `write_page`.
        titles: that such a page has.

    Raises:
        UserError: a file of somebody else is in their place.
    """

    def is_table(path: Path) -> bool:
        with open_regular(path) as file, lzma.open(file) as unpacked:
            return b"arm" in unpacked.readline(4096).strip().split(b",")

    headings = [f"# {title}" for title in titles]
    check_output(folder / f"{name}.md", "page", (), begins_with(*headings))
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
    notes: str = "",
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Writes `<name>.md`, and pictures and ranking into `<name>/`; returns ranking and claims.

    Args:
        study: its declaration.
        results: of its arms, with two searches of one of them at least.
        folder: of the page.
        name: of the page.
        sibling: the comparison of `study.compared_with`.
        notes: Markdown of what became known after the declaration.
    """
    comparison = Comparison(study, results)
    ranking = comparison.rank_arms()
    claims = comparison.judge_claims(ranking)
    pictures = folder / name
    pictures.mkdir(parents=True, exist_ok=True)
    write_ranking(study, results, ranking, pictures / "ranking.csv")
    _draw_pictures(study, results, ranking, claims, pictures)
    agreement, agreement_table = None, ""
    if study.compared_with and sibling:
        agreement = find_agreement(comparison, sibling, study.compared_with.without)
    if study.compared_with and agreement:
        datasets = study.dataset, study.compared_with.dataset
        agreement_table = page_tables.agreement_table(agreement, *datasets)
        draw_agreement(agreement, *datasets, study.claimed(), pictures / "datasets.png")
    scores = results.scores
    sensitive = find_sensitive_claims(comparison, ranking)
    claimed = set(study.claimed())
    has_few_searches = bool((ranking.searches < LEAST).all())
    text = render(
        "page.md.jinja",
        study=study,
        introduction=split_introduction(study.question),
        name=name,
        ranking_table=page_tables.ranking_table(study, ranking),
        lengths_table=page_tables.lengths_table(ranking, results),
        claims_table=page_tables.claims_table(claims, ranking, results),
        claims_summary=summarize_claims(claims),
        dependent_claims=list_dependent_claims(sensitive),
        sensitivity_table=page_tables.sensitivity_table(sensitive),
        explanations=_explain_columns(sensitive, has_few_searches),
        verdicts_table=page_tables.verdicts_table(study),
        agreement=agreement,
        agreement_table=agreement_table,
        shared_verdicts=count_shared_verdicts(agreement) if agreement else 0,
        shared_arms=_count_shared_arms(study),
        options_table=page_tables.options_table(study, results),
        trials_table=page_tables.trials_table(study, results),
        untrained=ranking.untrained.mean(),
        pooled=comparison.noise.pooled**0.5,
        pooled_interval=spread_interval(comparison.noise),
        freedom=comparison.noise.freedom,
        range=find_range(comparison, ranking),
        largest_share=find_largest_share(comparison.noise),
        gain_error=pool_gain_error(ranking, study.searches),
        has_collapsed=(results.trials.value == 0).any(),
        claimed_spread=pool_spread(comparison, claimed),
        others_spread=pool_spread(comparison, set(ranking.arm) - claimed),
        pairs=_count_pairs(comparison, ranking),
        has_stages=(ranking.stages > 1).any(),
        has_failed=ranking.failed.any(),
        has_few_searches=has_few_searches,
        has_variances_of_arms=not ranking.is_pooled.all(),
        least_half=comparison.least_half_width(),
        typical_half=_find_typical_half_width(claims),
        repeated=_list_repeated(results),
        is_partial=not ranking.complete.all() or len(ranking) < len(study.arms),
        notes=notes,
        unstable=[code(arm) for arm in comparison.noise.unstable],
        equal=2**0.5 * comparison.noise.pooled**0.5,
        lengths=page_tables.list_lengths(results),
        trials=results.trials.groupby(["arm", "search"]).size().max(),
        folds=scores.fold.nunique(),
        images=comparison.images.sum(),
        classes=len(comparison.images),
        not_trained=_list_not_trained(study, results),
        chosen_lengths=count_lengths(results),
        ranked=len(ranking),
        falling=(ranking.gain <= -study.plateau).sum(),
        not_level=[code(arm) for arm in ranking[ranking.rising].arm],
        declared=[code(commit) for commit in scores.declared.unique()],
        revisions=", ".join(map(code, scores.revision.str[:12].unique())),
        devices="; ".join(sorted(scores.device.unique())),
        versions="; ".join(sorted(scores.versions.unique())),
        hours=scores.processor_seconds.sum() / 3600,
        search_hours=scores.groupby(["arm", "search"]).processor_seconds.sum().median() / 3600,
    )
    write_text(folder / f"{name}.md", text)
    return ranking, claims


def _draw_pictures(
    study: Declaration,
    results: Results,
    ranking: pd.DataFrame,
    claims: pd.DataFrame,
    folder: Path,
) -> None:
    """Draws scores, differences, curves and claims; of many arms a summary, too, for the README.

    The summary has the best arm, the reference and the arms of the claims. A comparison with the
    arms of another one has none.
    """
    draw_scores(ranking, folder / "scores.png")
    if len(ranking) > MANY and study.compared_with is None:
        shown = {ranking.arm.iloc[0], study.reference, *study.claimed()}
        draw_scores(ranking[ranking.arm.isin(shown)], folder / "summary.png")
    draw_differences(study, ranking, folder / "differences.png")
    draw_curves(results, list(ranking.arm), folder / "curves.png")
    if not claims.empty:
        draw_claims(study, claims, folder / "claims.png")


def render(template: str, **values: Any) -> str:
    """Returns the text of a template of this folder."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), trim_blocks=True, undefined=StrictUndefined
    )
    environment.filters |= {
        "arms": _list_pairs,
        "code": code,
        "points": "{:.2f}".format,
        "rho": _describe_correlation,
    }
    return environment.get_template(template).render(**values).rstrip() + "\n"


class Introduction(NamedTuple):
    """The question of a study: its first sentences, and a list of the others."""

    beginning: str
    rest: list[str]


def split_introduction(question: str) -> Introduction:
    """Returns the first sentences of a question, and the others.

    They have `INTRODUCTION` characters at most, unless the first alone is longer.
    """
    beginning, *sentences = re.split(r"(?<=[.?!]) (?=[A-Z])", question.strip())
    while sentences and len(beginning) + len(sentences[0]) <= INTRODUCTION:
        beginning += f" {sentences.pop(0)}"
    return Introduction(beginning, sentences)


def _list_pairs(pairs: Sequence[tuple[str, str]]) -> str:
    """Returns pairs of arms as text, such as "`ms` above `triplet`"."""
    return ", ".join(f"{code(first)} above {code(second)}" for first, second in pairs)


def _describe_correlation(correlation: Correlation) -> str:
    """Returns a correlation with its interval as text, such as "0.85 (0.71 to 0.93)"."""
    return f"{correlation.rho:.2f} ({correlation.low:.2f} to {correlation.high:.2f})"


def _count_pairs(comparison: Comparison, ranking: pd.DataFrame) -> dict[str, int]:
    """Returns how many pairs of arms there are, and how many the tests of all pairs tell apart.

    Keys: `all`, `different`, and those of arms that learned, `all_learned`, `different_learned`.
    """
    learned = set(ranking[~ranking.failed].arm)
    different = list(comparison.find_different_pairs(list(ranking.arm)))
    return {
        "all": comb(len(ranking), 2),
        "different": len(different),
        "all_learned": comb(len(learned), 2),
        "different_learned": sum(learned.issuperset(pair) for pair in different),
    }


def _explain_columns(sensitive: pd.DataFrame, has_few_searches: bool) -> dict[str, str]:
    """Returns column → what it shows, of the columns of `find_sensitive_claims` that need it."""
    texts = {column: EXPLANATIONS[column] for column in sensitive if column in EXPLANATIONS}
    if has_few_searches and OWN_VARIANCES in texts:
        texts[OWN_VARIANCES] += FEW_SEARCHES
    return texts


def _find_typical_half_width(claims: pd.DataFrame) -> float | None:
    """Returns the median half-width of the intervals of claims; None without a claim."""
    if claims.empty:
        return None
    return float((claims.high - claims.low).median() / 2)


def _count_shared_arms(study: Declaration) -> int:
    """Returns how many arms are compared with another dataset, once all have their searches."""
    if study.compared_with is None:
        return 0
    return len(set(study.arms) - set(study.compared_with.without))


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
