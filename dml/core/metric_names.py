"""Names of the retrieval metrics, as results store them and as tables and figures print them.

`dml.retrieval.metrics` computes those of every ranking (`METRICS` and `score_rankings`).
"""

from __future__ import annotations

from collections.abc import Iterable

LABELS = {"precision_at_1": "P@1", "r_precision": "R-precision", "map_at_r": "MAP@R"}
RECALL = "recall_at_"
# Scores of the final network only; no epoch is selected by them.
FINAL_LABELS = {
    "mean_average_precision": "mAP",
    "nmi": "NMI",
    "ami": "AMI",
    "mrr_at_r": "MRR@R",
    "fnmr_at_fmr_0.01": "FNMR@FMR 0.01",
    "fnmr_at_fmr_0.001": "FNMR@FMR 0.001",
}
SAME = ("precision_at_1", "recall_at_1")  # equal by definition: tables show one row for both
CHOICES = " | ".join([*reversed(LABELS), f"{RECALL}<K>"])  # first the usual selection metric


def is_score(name: str) -> bool:
    """Returns whether a name is a retrieval score (0–1), as opposed to a count or a loss."""
    return (
        name in LABELS
        or name in FINAL_LABELS
        or (name.startswith(RECALL) and name.removeprefix(RECALL).isdecimal())
    )


def tabled(names: Iterable[str]) -> dict[str, str]:
    """Returns metric → label of its row in a table; the two names in `SAME` share a row."""
    columns = dict.fromkeys(names)
    if not columns.keys() >= {*SAME}:
        return {name: metric_label(name) for name in columns}
    joined = ", ".join(map(metric_label, SAME))
    labels = {name: metric_label(name) for name in columns if name != SAME[1]}
    return labels | {SAME[0]: joined}


def metric_label(name: str) -> str:
    """Returns a metric's name as papers print it (`Recall@1`, `MAP@R`); other names unchanged."""
    if name.startswith(RECALL):
        return f"Recall@{name.removeprefix(RECALL)}"
    return {**LABELS, **FINAL_LABELS}.get(name, name)
