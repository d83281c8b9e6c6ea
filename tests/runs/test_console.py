"""The tables of scores on the console, by hand: means over folds, then over repeats."""

from statistics import fmean, stdev

import pytest
from scipy import stats

from dml.core.statistics import combine_scores
from dml.runs.console import print_results, print_scores


def make_results(values):
    """Results of models, whose scores are shares of one, from (repeat, fold) → MAP@R."""
    results = []
    for (repeat, fold), value in values.items():
        metrics = {"map_at_r": value, "queries": 40.0}
        untrained = {"map_at_r": value / 4, "queries": 40.0}
        results.append({"repeat": repeat, "fold": fold, "metrics": metrics, "untrained": untrained})
    return results


def print_cells(capsys, values, joined=None):
    """The cells of the row of MAP@R, and all that is printed."""
    results = make_results(values)
    summary = {
        "metrics": combine_scores(results),
        "untrained": combine_scores(results, "untrained"),
        "jobs": results,
        "concatenated": None,
        "embedding_size": 32,
        "loss": "ms",
        "method": "plain",
        "data": "cub",
        "protocol": "mlrc",
        "stand_in": False,
        "classes_tested": "40 images of 8 unseen classes",
        "selected_by": "map_at_r on validation",
        "config": {"protocol": {"epochs": 1}},
    }
    if joined is not None:
        repeats = make_results(joined)
        scores = combine_scores(repeats)
        summary["concatenated"] = {"embedding_size": 64, "metrics": scores, "repeats": repeats}
    print_results(summary)
    printed = capsys.readouterr().out
    (row,) = [line for line in printed.splitlines() if "MAP@R" in line]
    cells = [cell.strip() for cell in row.replace("┃", "│").strip("│ ").split("│")]
    return cells, printed


FOLDS = {(4, 0): 0.2, (0, 1): 0.1, (4, 1): 0.41, (0, 0): 0.5, (2, 0): 0.25, (2, 1): 0.8}


def test_an_interval_is_over_repeats_and_not_over_models(capsys):
    joined = {(0, 0): 0.71, (2, 0): 0.62, (4, 0): 0.5}
    cells, printed = print_cells(capsys, FOLDS, joined)
    texts = []
    for repeats in ([30.5, 30.0, 52.5], [71.0, 62.0, 50.0]):
        half = stats.t.ppf(0.975, 2) * stdev(repeats) / 3**0.5
        texts.append(f"{fmean(repeats):.2f} ± {half:.2f}")
    assert cells == ["MAP@R", f"{fmean(FOLDS.values()) / 4 * 100:.2f}", *texts]
    assert "separated 32-d (mean of 3 ± 95 %)" in printed
    assert "concatenated 64-d (mean of 3 ± 95 %)" in printed
    assert "queries" not in printed  # a count is no score


@pytest.mark.parametrize(
    ("values", "cell", "title"),
    [
        ({(0, 0): 0.1234}, "12.34", "trained "),
        ({(1, 0): 0.3, (0, 0): 0.1}, "30.00, 10.00", "trained (2 repeats)"),
    ],
)
def test_few_repeats_have_no_interval(capsys, values, cell, title):
    cells, printed = print_cells(capsys, values)
    assert cells[2] == cell
    assert title in printed
    assert "±" not in printed


@pytest.mark.parametrize(("number", "text"), [(1, "1 query, "), (2000, "2,000 queries, ")])
def test_queries_are_counted(capsys, number, text):
    metrics = {"map_at_r": 0.5, "queries": number, "queries_without_match": 0}
    print_scores({"name": "net", "stand_in": False, "metrics": metrics})
    assert f"{text}0 without a match" in capsys.readouterr().out
