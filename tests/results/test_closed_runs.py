"""Runs of closed sets in lists, comparisons and reports: apart, marked, never beside papers."""

import pytest

from dml.results.frame import load_runs, one_per_run
from dml.results.nearest import find_nearest
from dml.results.report_files import write_reports
from dml.results.run_comparison import compare_runs
from dml.results.run_list import best_table, rank_runs, run_table
from dml.results.run_selection import find_run
from tests.results.made_runs import build, make_cell, node, write_run

CUB = ("data=cub", "loss=mfcwms")
CLOSED = "closed_set (seen classes)"
SCORE = 0.3


def options_of(composed, *words):
    return composed(*CUB, *words)


@pytest.fixture
def runs(composed, tmp_path):
    """A run on unseen classes, whose scores are low, and one of a closed set."""
    write_run(tmp_path, options_of(composed, "protocol=traditional"), [[0.1]])
    write_run(tmp_path, options_of(composed, "protocol=validation"), [[0.2]])
    write_run(tmp_path, options_of(composed, "protocol=closed_set"), [[0.9]])
    return load_runs(tmp_path)


def plain(texts):
    return "\n".join(text.plain for text in texts)


@pytest.mark.parametrize("width", [200, 66])
def test_lists_mark_closed_sets_however_narrow(runs, width):
    listed = plain(run_table(runs.select(one_per_run(runs.table)), width))
    assert listed.count("seen classes") == 1
    (line,) = [line for line in listed.splitlines() if "90.00" in line]
    assert CLOSED in line


def test_a_list_of_closed_sets_alone_has_the_mark_in_its_title(runs):
    closed = runs.select(runs.table[runs.table.protocol == "closed_set"])
    assert CLOSED in plain(run_table(closed, 200)).splitlines()[0]


def test_closed_sets_are_ranked_by_themselves(runs):
    lines = plain(best_table(rank_runs(runs), 200)).splitlines()
    ranks = {line.split()[1]: line.split()[0] for line in lines if "1" in line.split()[:1]}
    assert ranks.keys() == {"closed_set", "traditional", "validation"}


def test_no_published_number_is_near_a_closed_set(runs):
    near = {run.config.protocol: find_nearest(run) for run in runs.distinct}
    assert near["closed_set"] is None
    assert near["traditional"] is not None


def test_scores_of_seen_and_unseen_classes_are_not_compared(runs, tmp_path):
    table = one_per_run(runs.table)
    rows = runs.select(table)
    ids = dict(zip(table.protocol, table.id, strict=True))
    found = {name: find_run(id, rows) for name, id in ids.items()}
    for names in (("closed_set", "validation"), ("traditional", "closed_set", "validation")):
        chosen = [found[name] for name in names]
        mixed = plain(compare_runs(chosen, runs, tmp_path, 200))
        assert "protocol.splits" in mixed
        assert "no scores: those of some runs are of classes seen in training" in mixed
        assert "90.00" not in mixed
    pair = [found["traditional"], found["validation"]]
    usual = plain(compare_runs(pair, runs, tmp_path, 200))
    assert "P@1" in usual
    assert "no scores" not in usual


def test_a_report_of_an_experiment_compares_no_closed_set(composed, tmp_path):
    """A run of an experiment's cell whose protocol was replaced."""
    words = node("probe")
    cell = make_cell(options_of(composed, "protocol=traditional", *words))
    write_run(tmp_path, options_of(composed, "protocol=closed_set", *words), [[SCORE]])
    report = build([cell], tmp_path)
    (row,) = [row for row in report.rows if not row.runs.table.empty]
    assert "C" in [caveat.mark for caveat in row.caveats]
    assert all(score.comparison is None or score.comparison.verdict == "not_compared"
               for score in row.scores.values())  # fmt: skip
    assert report.missing == [cell]


def test_a_report_of_runs_has_a_section_of_closed_sets_with_accuracies(composed, tmp_path):
    for protocol in ("validation", "closed_set"):
        cfg = options_of(composed, f"protocol={protocol}", "experiment.id=mine")
        folder = write_run(tmp_path, cfg, [[SCORE]])
        path = folder / "summary.json"
        if protocol == "closed_set":
            numbers = '"map_at_r": 0.3, "accuracy_class_mean": 0.625, "accuracy_neighbors": 0.5'
            path.write_text(path.read_text().replace('"map_at_r": 0.3', numbers))
    written = write_reports(["mine"], tmp_path, tmp_path / "reports", figures=False)
    text = written[1].read_text()
    unseen, closed = sorted(text.split("### ")[1:], key=lambda part: "closed_set" in part)
    title = closed.splitlines()[0]
    assert "closed_set, classes seen in training" in title
    assert "62.50" in closed
    assert "accuracy (class mean)" in closed
    assert "accuracy" not in unseen
    assert "seen in training" not in unseen
