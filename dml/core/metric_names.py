"""Names of the retrieval metrics, as results store them and as tables and figures print them.

`dml.retrieval.metrics` computes those of every ranking (`METRICS` and `score_rankings`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dml.core.option_values import EXTRA_METRICS

LABELS = {"precision_at_1": "P@1", "r_precision": "R-precision", "map_at_r": "MAP@R"}
RECALL = "recall_at_"
# Ends of further columns of FNMR@FMR: the threshold, and errors of test images at the threshold
# that validation images have chosen.
THRESHOLD, TEST_FNMR, TEST_FMR = "_threshold", "_test_fnmr", "_test_fmr"
# Scores of the final network only; no epoch is selected by them.
FINAL_LABELS = {
    "mean_average_precision": "mAP",
    "nmi": "NMI",
    "ami": "AMI",
    "mrr_at_r": "MRR@R",
    "fnmr_at_fmr_0.01": "FNMR@FMR 0.01",
    "fnmr_at_fmr_0.001": "FNMR@FMR 0.001",
    "fnmr_at_fmr_0.01_test_fnmr": "FNMR at validation threshold of FMR 0.01",
    "fnmr_at_fmr_0.01_test_fmr": "FMR at validation threshold of FMR 0.01",
    "fnmr_at_fmr_0.001_test_fnmr": "FNMR at validation threshold of FMR 0.001",
    "fnmr_at_fmr_0.001_test_fmr": "FMR at validation threshold of FMR 0.001",
    "category_recall_at_1": "Recall@1, mean of categories",
    "category_map_at_r": "MAP@R, mean of categories",
}
OF_CATEGORIES = ("recall_at_1", "map_at_r")  # scores of each category, of evaluation.by=category
MEANS_OF_CATEGORIES = tuple(f"category_{name}" for name in OF_CATEGORIES)
# Under `protocol=closed_set`, by the training images; computed at every evaluation if they select.
ACCURACIES = {
    "accuracy_class_mean": "accuracy (class mean)",
    "accuracy_neighbors": "accuracy (neighbors)",
}
OF_LOSS = {"accuracy_loss": "accuracy (loss)"}  # by logits of the loss; of `dml evaluate` alone
OTHER_LABELS = {"loss_without_constant": "loss without its constant"}  # columns of histories
SAME = ("precision_at_1", "recall_at_1")  # equal by definition: tables show one row for both
CHOICES = " | ".join([*reversed(LABELS), f"{RECALL}<K>"])  # first the usual selection metric

# Columns of histories and of tables of runs that hold no metric.
COLUMNS = (
    "repeat", "fold", "epoch", "step", "train_steps", "best_epoch", "epoch_seconds", "seconds",
    "ms_per_batch", "queries", "queries_without_match", "collapsed", "empty_steps", "stage",
    "lr", "loss", "folder", "id",
    "state", "problem", "age", "size", "name", "note", "experiment", "data", "protocol", "method",
    "backbone", "setting", "seed", "epochs", "selected_by", "images", "score",
    "configuration", "evaluation", "result_id", "protocol_id", "dim", "stand_in",
)  # fmt: skip
BEGINNINGS = ("test_", "untrained_", "lr_", "loss_", "stage_", "radius_", RECALL)  # of further ones


def is_taken(name: str) -> bool:
    """Returns whether a name is that of a metric or of a column of histories and tables."""
    is_threshold = name.removesuffix(THRESHOLD) in EXTRA_METRICS
    is_metric = is_score(name) or name in EXTRA_METRICS or is_threshold
    return is_metric or name in COLUMNS or name.startswith(BEGINNINGS)


def can_select(name: str, seen_classes: bool = False) -> bool:
    """Returns whether every evaluation has a score of this name, so that it can select an epoch.

    Args:
        name: of the score.
        seen_classes: whether the protocol tests the classes of the training, which have accuracies.
    """
    if seen_classes and name in ACCURACIES:
        return True
    return name in LABELS or re.fullmatch(rf"{RECALL}\d+", name) is not None


def recall_levels(usual: Sequence[int], select_metric: str) -> list[int]:
    """Returns the values of K of Recall@K to compute: the usual ones, and that of the selection."""
    level = select_metric.removeprefix(RECALL)
    if not can_select(select_metric) or not level.isdecimal():
        return list(usual)
    return sorted({*usual, int(level)})


def is_score(name: str) -> bool:
    """Returns whether a name is a retrieval score (0–1), as opposed to a count or a loss."""
    return (
        name in LABELS
        or name in FINAL_LABELS
        or name in ACCURACIES
        or name in OF_LOSS
        or (name.startswith(RECALL) and name.removeprefix(RECALL).isdecimal())
    )


def select_columns(columns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Returns the columns of metrics of the user: `<name>`, or `<name>_…` for several numbers."""
    names = list(names)
    selected = []
    for column in columns:
        if any(column == name or column.startswith(f"{name}_") for name in names):
            selected.append(column)
    return selected


def tabled(names: Iterable[str]) -> dict[str, str]:
    """Returns metric → label of its row in a table; the two names in `SAME` share a row."""
    columns = dict.fromkeys(names)
    if not columns.keys() >= {*SAME}:
        return {name: metric_label(name) for name in columns}
    joined = ", ".join(map(metric_label, SAME))
    labels = {name: metric_label(name) for name in columns if name != SAME[1]}
    return labels | {SAME[0]: joined}


def format_metric(name: str, value: float) -> str:
    """Returns a score in percent with two decimals, and other numbers with four digits."""
    return f"{100 * value:.2f}" if is_score(name) else f"{value:.4g}"


def metric_label(name: str) -> str:
    """Returns a metric's name as papers print it (`Recall@1`, `MAP@R`); other names unchanged."""
    if name.startswith(RECALL):
        return f"Recall@{name.removeprefix(RECALL)}"
    return {**LABELS, **FINAL_LABELS, **ACCURACIES, **OF_LOSS, **OTHER_LABELS}.get(name, name)
