"""Welch's tests of all pairs of rows, against scipy on the same samples."""

from __future__ import annotations

import pytest
from scipy import stats

from tests.results.made_runs import TEN, build, spread_over_folds, write_run


def test_tests_of_all_pairs(cells, tmp_path):
    some = cells("arcface", "mfcont", "mfcwms")
    samples = [[value + shift for value in TEN] for shift in (0.0, 0.0002, 0.01)]
    for values, cell in zip(samples, some, strict=True):
        write_run(tmp_path, cell.config, spread_over_folds(values), TEN)
    (family,) = build(some, tmp_path).sections[0].families
    assert [row.key.method for row in family.rows] == ["arcface", "mf_contrastive", "mf_cwms"]
    raw = {
        (a, b): stats.ttest_ind(samples[a], samples[b], equal_var=False).pvalue
        for a, b in ((0, 1), (0, 2), (1, 2))
    }
    small, middle, large = sorted(raw, key=lambda pair: raw[pair])
    corrected = {small: 3 * raw[small], middle: 2 * raw[middle], large: raw[large]}
    for pair in raw:
        assert family.tests[pair].p_value == pytest.approx(raw[pair])
        assert family.tests[pair].corrected == pytest.approx(corrected[pair])
        assert family.tests[pair[::-1]].corrected == pytest.approx(corrected[pair])
    assert [family.tests[2, 0].symbol, family.tests[0, 2].symbol] == ["▲", "▼"]
    assert family.tests[1, 0].symbol == "·"
    # Table 6 of the paper has marks against ArcFace, none between the mean field losses.
    assert family.tests[2, 0].paper == "better"
    assert family.tests[1, 0].paper == "better"
    assert family.tests[2, 1].paper is None
    assert family.tests[0, 1].paper is None


def test_different_budgets_are_not_tested(mlrc, cells, tmp_path):
    folds = spread_over_folds(TEN)
    write_run(tmp_path, mlrc("loss=mfcwms", "protocol.epochs=5"), folds, TEN)
    write_run(tmp_path, mlrc("loss=arcface"), folds, TEN)
    report = build(cells("mfcwms", "arcface"), tmp_path)
    assert all(not section.families for section in report.sections)
