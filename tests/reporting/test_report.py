"""Reports of runs written by hand: sections, progress, missing cells."""

from __future__ import annotations

from dml.reporting.catalog import load_experiment
from dml.reporting.report import build_report
from tests.reporting.made_runs import TEN, build, spread_over_folds, write_run


def test_only_metrics_of_the_dataset_are_shown(cells, tmp_path):
    some = cells("mfcwms")
    write_run(tmp_path, some[0].config, spread_over_folds(TEN), TEN)
    report = build(some, tmp_path, metrics=["recall_at_100", "map_at_r", "recall_at_10"])
    assert [section.metrics for section in report.sections] == [["map_at_r"], ["map_at_r"]]


def test_missing_cells(cells, tmp_path):
    some = cells("mfcwms", "arcface")
    write_run(tmp_path, some[0].config, spread_over_folds(TEN), TEN)
    report = build(some, tmp_path)
    assert (len(report.cells), report.status) == (2, "1 of 2 cells run")
    assert list(report.missing) == [some[1]]


def test_runs_of_no_experiment(composed, tmp_path):
    for seed in (0, 1, 2):
        write_run(tmp_path, composed(f"seed={seed}"), [[0.4 + seed / 100]])
        write_run(tmp_path, composed(f"seed={seed}", "optim.lr=1e-5"), [[0.3 + seed / 100]])
    report = build_report(load_experiment("single"), (), tmp_path)
    assert report.status == "2 configurations"
    assert {row.label for row in report.rows} == {"optim.lr=0.003", "optim.lr=1e-05"}
    assert {row.numbers["map_at_r"].ours.n for row in report.rows} == {3}
    assert [kind.code for kind in report.caveat_kinds] == ["S"]
    assert report.missing == ()
    (family,) = report.sections[0].families
    assert len(family.tests) == 2
