"""Caveats of runs that differ from their cell, and of their provenance."""

from __future__ import annotations

import pytest

from dml.results.comparison import Verdict
from tests.results.made_runs import TEN, build, find_row, spread_over_folds, write_run


def codes(row) -> str:
    return "".join(caveat.kind.code for caveat in row.caveats)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (["protocol.epochs=5"], "B"),
        (["search=bayes", "search.trials=3"], "B"),
        (["backbone.weights=none"], "W"),
        (["protocol.select_metric=recall_at_1"], "E"),
        (["data.label_noise=0.2"], "N"),
        (["loss.alpha=3"], "O"),
        (["protocol.splits=ccp"], "P"),
        (["protocol.repeats=3"], "R"),
        (["loss.alpha=3", "protocol.epochs=5"], "BO"),
    ],
)
def test_options_that_differ_from_the_cell(mlrc, cells, tmp_path, change, expected):
    cfg = mlrc("loss=mfcwms", "protocol.repeats=10", *change)
    values = TEN[: cfg.protocol.repeats]
    write_run(tmp_path, cfg, spread_over_folds(values), values)
    some = cells("mfcwms")
    report = build(some, tmp_path)
    row = find_row(report, "mf_cwms")
    assert codes(row) == expected
    comparison = row.numbers["map_at_r"].comparison
    if expected == "R":
        assert comparison.difference is not None
        assert report.missing == ()
    else:
        assert (comparison.verdict, comparison.difference) == (Verdict.NOT_COMPARED, None)
        assert list(report.missing) == some
        name = change[0].partition("=")[0]
        assert any(name.split(".")[0] in caveat.detail for caveat in row.caveats)
