"""Rows of a report: estimates, published results, labels."""

from __future__ import annotations

import pytest
from scipy import stats

from dml.results.comparison import Verdict
from tests.results.made_runs import (
    TEN,
    build,
    find_row,
    spread_over_folds,
    write_run,
)


def test_numbers_and_verdicts(cells, tmp_path):
    some = cells("mfcwms", "arcface")
    write_run(tmp_path, some[0].config, spread_over_folds(TEN), [v + 0.05 for v in TEN])
    report = build(some, tmp_path)
    number = find_row(report, "mf_cwms").numbers["map_at_r"]
    percent = [100 * v for v in TEN]
    assert number.ours.values == pytest.approx(percent)
    low, high = stats.t.interval(0.95, 9, sum(percent) / 10, stats.sem(percent))
    assert number.ours.mean - number.ours.ci95 == pytest.approx(low)
    assert number.ours.mean + number.ours.ci95 == pytest.approx(high)
    assert str(number.published) == "22.11 ± 0.08"  # Table 3, not 22.1 of Table 1
    assert number.comparison.verdict == Verdict.OVERLAP
    assert number.comparison.difference == pytest.approx(22.10 - 22.11)
    deviation = 0.08 * 10**0.5 / stats.t.ppf(0.975, 9)
    expected = stats.ttest_ind_from_stats(
        22.10, stats.tstd(percent), 10, 22.11, deviation, 10, equal_var=False
    ).pvalue
    assert number.comparison.p_value == pytest.approx(expected)
    concatenated = find_row(report, "mf_cwms", "concatenated").numbers["map_at_r"]
    assert concatenated.comparison.difference == pytest.approx(27.10 - 27.03)
    assert find_row(report, "mf_cwms").caveats == ()


def test_a_missing_cell_has_its_published_result(cells, tmp_path):
    row = find_row(build(cells("mfcwms", "arcface"), tmp_path), "arcface")
    assert row.group is None
    assert str(row.numbers["map_at_r"].published) == "21.46 ± 0.13"
