"""Reports of runs written by hand: sections, progress, missing cells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dml.results.catalog import load_experiment
from dml.results.report import build_report
from tests.results.made_runs import TEN, build, spread_over_folds, write_run


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
        write_run(tmp_path, composed(f"seed={seed}", "optim.lr=3e-3"), [[0.4 + seed / 100]])
        write_run(tmp_path, composed(f"seed={seed}", "optim.lr=1e-5"), [[0.3 + seed / 100]])
    report = build_report(load_experiment("single"), (), tmp_path)
    assert report.status == "2 configurations, 6 runs"
    assert report.missing == ()
    (section,) = report.sections
    assert section.settings == ("optim.lr",)
    assert [row.name for row in section.rows] == ["mfcwms (lr 1e-05)", "mfcwms (lr 0.003)"]
    assert {row.numbers["map_at_r"].ours.n for row in section.rows} == {3}
    assert section.title.endswith("stand-in data")
    (family,) = section.families
    assert len(family.tests) == 2


def test_networks_before_training_are_baselines_of_every_table(composed, tmp_path):
    for seed in (0, 1):
        for lr in ("1e-3", "1e-5"):
            folder = write_run(tmp_path, composed(f"seed={seed}", f"optim.lr={lr}"), [[0.4]])
            set_untrained(folder, 0.1 + seed / 10)
    shelf = composed("method=untrained", "protocol.epochs=0", "embedder.size=128")
    write_run(tmp_path, shelf, [[0.2]])
    (section,) = build_report(load_experiment("single"), (), tmp_path).sections
    untrained, off_the_shelf = section.baselines
    assert untrained.name == "untrained"
    # the same network for both learning rates: one value per seed
    assert untrained.numbers["map_at_r"].ours.values == pytest.approx((10, 20))
    assert off_the_shelf.name == "off the shelf (128-d)"
    assert off_the_shelf.numbers["map_at_r"].ours.mean == pytest.approx(20)


def test_untrained_networks_alone_have_a_table(composed, tmp_path):
    write_run(
        tmp_path, composed("method=untrained", "protocol.epochs=0", "embedder.size=128"), [[0.2]]
    )
    (section,) = build_report(load_experiment("single"), (), tmp_path).sections
    assert [row.name for row in section.rows] == ["untrained"]
    assert section.baselines == ()


def set_untrained(folder: Path, value: float) -> None:
    """Adds scores before training to a run written by hand."""
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    for job in summary["jobs"]:
        job["untrained"] = {"map_at_r": value}
    path.write_text(json.dumps(summary))
