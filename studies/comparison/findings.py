"""What a comparison found, in a few lines that stand above its tables."""

from __future__ import annotations

import pandas as pd

from scripts.docs.markdown import code
from studies.comparison.agreement import Agreement
from studies.comparison.page_tables import list_lengths
from studies.comparison.results import Results
from studies.comparison.sensitivity import ESTIMATES
from studies.comparison.statistics import VERDICTS

NAMED = ("better", "worse", "equivalent")  # verdicts of which the claims are named


def summarize_claims(claims: pd.DataFrame) -> str:
    """Returns the verdicts on the claims, such as "*better*: `ms` above `c1`; *unknown*: 3".

    Without a claim, the text is empty.

    Args:
        claims: of `Comparison.judge_claims`.
    """
    parts: list[str] = []
    if claims.empty:
        return ""
    for verdict in VERDICTS:
        of_verdict = claims[claims.verdict == verdict]
        if of_verdict.empty:
            continue
        text = str(len(of_verdict))
        if verdict in NAMED:
            names = []
            for claim in of_verdict.itertuples():
                names.append(f"{code(claim.better)} above {code(claim.than)}")
            text = ", ".join(names)
        parts.append(f"*{verdict}*: {text}")
    return "; ".join(parts)


def list_dependent_claims(sensitive: pd.DataFrame) -> str:
    """Returns the claims whose *better* or *worse* another estimate of the noise does not give.

    Empty without such a claim.

    Args:
        sensitive: of `sensitivity.find_sensitive_claims`.
    """
    if sensitive.empty:
        return ""
    estimates = [column for column in sensitive if column in ESTIMATES]
    names = []
    for claim in sensitive[sensitive.verdict.isin(["better", "worse"])].to_dict("records"):
        verdicts = [claim[estimate].partition(" (")[0] for estimate in estimates]
        if any(verdict != claim["verdict"] for verdict in verdicts):
            names.append(f"{code(claim['better'])} above {code(claim['than'])}")
    return ", ".join(names)


def count_shared_verdicts(agreement: Agreement) -> int:
    """Returns how many claims are *better* in both comparisons, or *worse* in both."""
    here, there = agreement.claims.verdict_here, agreement.claims.verdict_there
    return int((here.isin(["better", "worse"]) & (here == there)).sum())


def count_lengths(results: Results) -> str:
    """Returns how many searches chose each length, such as "20 with 500 steps, 4 with 2,000 steps".

    A search chooses the length with the best validation score.
    """
    counts = results.choose_lengths().epochs.value_counts()
    lengths = sorted(results.scores.epochs.unique())
    texts = []
    for epochs, steps in zip(lengths, list_lengths(results), strict=True):
        texts.append(f"{counts.get(epochs, 0)} with {steps} steps")
    return ", ".join(texts)
