"""The tables of the page of a comparison, as Markdown."""

from __future__ import annotations

from typing import Any

import pandas as pd

from scripts.docs.markdown import code, table, unbroken
from studies.comparison.agreement import Agreement
from studies.comparison.declaration import Declaration
from studies.comparison.ranking_table import list_remarks
from studies.comparison.results import Results
from studies.comparison.statistics import LEAST, VERDICTS, describe_rank, describe_verdict

NO_OPTIONS = ["arm", "search", "number", "state", "value"]  # columns of trials beside the options


def ranking_table(study: Declaration, ranking: pd.DataFrame) -> str:
    """Returns the ranking, of `Comparison.rank_arms`."""
    rows = []
    for row in ranking.itertuples():
        difference = "reference"
        if row.arm != study.reference:
            difference = f"{row.points:+.2f} ({row.low:+.2f} to {row.high:+.2f})"
        mark = "" if row.is_pooled else "\\*"
        score = unbroken(f"{row.map_at_r:.2f} ± {row.half:.2f}{mark}")
        cells = [code(row.arm), score, str(row.searches)]
        cells += [_write_number(row.spread, ".2f"), unbroken(difference)]
        ranks = describe_rank(row.rank_low, row.rank_high)
        cells += [unbroken(ranks), f"{row.precision_at_1:.2f}"]
        rows.append([*cells, _remark(row)])
    minus = f"minus {code(study.reference)}"
    return table(["arm", "MAP@R", "searches", "SD", minus, "ranks", "P@1", "remarks"], rows)


def _remark(row: Any) -> str:
    remarks = list_remarks(row)
    if row.stages > 1:
        remarks.append(f"{row.stages:.1f} stages")
    return ", ".join(remarks)


def lengths_table(ranking: pd.DataFrame, results: Results) -> str:
    """Returns the scores of each length of training, in the order of a ranking."""
    means = results.runs().map_at_r.groupby(["arm", "epochs"]).mean().unstack()
    rows = []
    for row in ranking.itertuples():
        scores = [_write_number(score, ".2f") for score in means.loc[row.arm]]
        gain = _write_number(row.gain, "+.2f")
        if row.searches >= LEAST and not pd.isna(row.gain_error):
            gain += f" (SE {row.gain_error:.2f})"
        rows.append([code(row.arm), *scores, unbroken(gain)])
    columns = ["arm", *map("{} steps".format, list_lengths(results)), "gain (validation)"]
    return table(columns, rows)


def claims_table(claims: pd.DataFrame, ranking: pd.DataFrame, results: Results) -> str:
    """Returns the claims, of `Comparison.judge_claims`; empty without one.

    Args:
        ranking: of `Comparison.rank_arms`.
    """
    if claims.empty:
        return ""
    means = results.runs().map_at_r.groupby(["arm", "epochs"]).mean().unstack()
    precisions = ranking.set_index("arm").precision_at_1
    rows = []
    for row in claims.itertuples():
        claim = f"{code(row.better)} above {code(row.than)} ({row.source})"
        p = unbroken("< 0.001")
        if row.p >= 0.001:
            p = f"{row.p:.3f}"
        interval = unbroken(f"{row.low:+.2f} to {row.high:+.2f}")
        cells = [claim, f"{row.points:+.2f}", interval, p, _emphasize(describe_verdict(row))]
        for points in means.loc[row.better] - means.loc[row.than]:
            cells.append(_write_number(points, "+.2f"))
        cells.append(f"{precisions[row.better] - precisions[row.than]:+.2f}")
        rows.append(cells)
    columns = ["claim", "difference", "interval", "p", "verdict"]
    columns += map("{} steps".format, list_lengths(results))
    return table([*columns, "P@1"], rows)


def _emphasize(verdict: str) -> str:
    """Returns a verdict in bold, without its reason: "**unknown**: end of a range"."""
    name, colon, reason = verdict.partition(":")
    return f"**{name}**{colon}{reason}"


def sensitivity_table(rows: pd.DataFrame) -> str:
    """Returns the claims of `find_sensitive_claims`; empty without one."""
    if rows.empty:
        return ""
    claims = []
    for row in rows.itertuples():
        claims.append(f"{code(row.better)} above {code(row.than)}")
    verdicts = rows.drop(columns=["better", "than"]).rename(columns={"verdict": "declared"})
    cells = []
    for claim, row in zip(claims, verdicts.itertuples(index=False), strict=True):
        cells.append([claim, *row])
    return table(["claim", *verdicts.columns], cells)


def verdicts_table(study: Declaration) -> str:
    """Returns the verdicts, and when each is given."""
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


def agreement_table(agreement: Agreement, here: str, there: str) -> str:
    """Returns the verdicts on claims with two datasets, of which the names are given."""
    claims = agreement.claims
    verdicts = {}
    for name in ("there", "here"):
        columns = ["verdict", "points", "low", "high"]
        of_one = claims[[f"{column}_{name}" for column in columns]].set_axis(columns, axis=1)
        verdicts[name] = [_describe_claim(row) for row in of_one.itertuples()]
    texts = [f"{code(row.better)} above {code(row.than)}" for row in claims.itertuples()]
    rows = list(zip(texts, verdicts["there"], verdicts["here"], strict=True))
    return table(["claim", f"with {there}", f"with {here}"], rows)


def _describe_claim(row: Any) -> str:
    """Returns a verdict with the difference and its interval."""
    difference = unbroken(f"{row.points:+.2f} ({row.low:+.2f} to {row.high:+.2f})")
    return f"{_emphasize(describe_verdict(row))}<br>{difference}"


def options_table(study: Declaration, results: Results) -> str:
    """Returns the options of each arm, and the values that its searches chose."""
    rows = []
    trials = results.trials
    for arm, options in study.arms.items():
        of_arm = trials[trials.arm == arm]
        chosen = chosen_values(of_arm)
        if chosen:
            rows.append([code(arm), code(" ".join(options)), "<br>".join(chosen)])
    return table(["arm", "options", "values that each search chose"], rows)


def trials_table(study: Declaration, results: Results) -> str:
    """Returns the validation scores of the values of a grid, means over the searches of an arm.

    It is empty for a search of another kind, and for a grid of several options.
    """
    trials = results.trials
    options = list(trials.columns.difference(NO_OPTIONS))
    if "search=grid" not in study.options or len(options) != 1:
        return ""
    name = options[0]
    means = trials.groupby(["arm", name]).value.mean().unstack()
    rows = []
    for arm in study.arms:
        if arm in means.index:
            scores = [_write_number(score, ".1f") for score in means.loc[arm]]
            rows.append([code(arm), *scores])
    columns = [code(f"{name}={value:g}") for value in means]
    return table(["arm", *columns], rows)


def chosen_values(trials: pd.DataFrame) -> list[str]:
    """Returns the values that each search of an arm chose, from the trials of this arm."""
    return [_describe_best(search) for _, search in trials.groupby("search")]


def _describe_best(trials: pd.DataFrame) -> str:
    trials = trials.dropna(axis=1, how="all")
    best = trials.loc[trials.value.idxmax()]
    best = best.drop(NO_OPTIONS, errors="ignore")
    return code(" ".join(f"{name}={value:.3g}" for name, value in best.items()))


def list_lengths(results: Results) -> list[str]:
    """Returns the lengths of training in steps, such as `2,000`."""
    return [f"{steps:,.0f}" for steps in results.scores.groupby("epochs").steps.max()]


def _write_number(number: float, form: str) -> str:
    """Returns a number as text; a dash where it is not known."""
    return "–" if pd.isna(number) else format(number, form)  # noqa: RUF001
