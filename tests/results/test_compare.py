"""Verdicts by hand, caveats of runs that differ from their cell, tests of pairs of rows."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dml.core.statistics import Estimate
from dml.results.compare import BLOCKING, MARKS, Caveat, compare, pair_tests
from dml.results.published import PublishedResult, ResultKey
from dml.results.section_tables import section_table
from tests.results.made_runs import TEN, build, find_row, spread_over_folds, write_run

# Three values d apart around m: standard deviation d, half-width 4.302653 d / sqrt(3) = 2.484138 d.


def around(mean: float, step: float) -> Estimate:
    return Estimate((mean - step, mean, mean + step))


def make_result(
    text: str, spread: str = "", kind: str = "none", runs: int | None = None
) -> PublishedResult:
    unit = 10.0 ** -len(text.partition(".")[2])
    return PublishedResult("mft", "T1", text, spread, kind, runs, "own", line=2, unit=unit)


@pytest.mark.parametrize(
    ("ours", "published", "verdict"),
    [
        # 20 ± 0.248 against 20.4 ± 0.2: 20.248 is above 20.2
        (around(20.0, 0.1), make_result("20.4", "0.2", "ci95", 10), "overlap"),
        # against 20.5 ± 0.2: 20.248 is below 20.3
        (around(20.0, 0.1), make_result("20.5", "0.2", "ci95", 10), "below"),
        (around(21.0, 0.1), make_result("20.5", "0.2", "ci95", 10), "above"),
        # std 0.2 of 5 runs is ± 2.776445 × 0.2 / sqrt(5) = 0.2483: 20.248 is below 20.2517
        (around(20.0, 0.1), make_result("20.5", "0.2", "std", 5), "below"),
        (around(20.0, 0.1), make_result("20.49", "0.2", "std", 5), "overlap"),
        # no interval: 20.248 reaches 20.25, the least that is published as 20.3, only from 20.002
        (around(20.0, 0.1), make_result("20.3"), "below"),
        (around(20.01, 0.1), make_result("20.3"), "overlap"),
        # a ± of unknown meaning is no interval
        (around(20.0, 0.1), make_result("20.3", "5", "unstated"), "below"),
        (Estimate((20.0,)), make_result("20.3", "0.2", "ci95", 10), "one_run"),
    ],
)
def test_verdicts(ours, published, verdict):
    found = compare(ours, published, [], "map_at_r")
    assert found.verdict == verdict
    assert found.difference == pytest.approx(ours.mean - published.value)


@given(st.integers(150, 250), st.integers(1, 40), st.integers(150, 250), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_intervals_that_overlap_are_no_difference_in_either_direction(mean, step, value, half):
    """Numbers are tenths; the intervals are closed."""
    ours = around(mean / 10, step / 10)
    published = make_result(f"{value / 10:.1f}", f"{half / 10:.1f}", "ci95", 10)
    apart = mean / 10 - value / 10
    reach = 2.484138 * step / 10 + half / 10
    expected = "overlap"
    if abs(apart) > reach:
        expected = "above" if apart > 0 else "below"
    assert compare(ours, published, [], "map_at_r").verdict == expected


def test_p_value_against_the_published_mean():
    values = (20.0, 20.2, 20.4)
    published = make_result("20.6", "0.2", "std", 5)
    found = compare(Estimate(values), published, [], "map_at_r").p_value
    # A sample with the published mean and deviation: 20.6 ± 0.2 × sqrt(4 / 2) at both ends.
    end = 0.2 * 2**0.5
    sample = (20.6 - end, 20.6, 20.6, 20.6, 20.6 + end)
    assert found == pytest.approx(stats.ttest_ind(values, sample, equal_var=False).pvalue)
    bare = compare(Estimate(values), make_result("20.6"), [], "map_at_r")
    assert bare.p_value is None


@pytest.mark.parametrize("mark", MARKS)
def test_some_caveats_leave_numbers_uncompared(mark):
    found = compare(around(20.0, 0.1), make_result("20.4"), [Caveat(mark)], "map_at_r")
    if mark in BLOCKING:
        assert (found.verdict, found.difference, found.p_value) == ("not_compared", None, None)
    else:
        assert found.difference == pytest.approx(-0.4)
    times = compare(around(14.0, 0.1), make_result("14.2"), [], "epoch_seconds")
    assert times.verdict == "not_compared"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (["protocol.epochs=5"], "B"),
        (["search=bayes", "search.trials=3"], "B"),
        (["backbone.weights=none"], "O"),
        (["loss.alpha=3"], "O"),
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
    assert "".join(caveat.mark for caveat in row.caveats) == expected
    comparison = row.score("map_at_r").comparison
    if expected == "R":
        assert comparison.difference is not None
        assert report.missing == []
    else:
        assert (comparison.verdict, comparison.difference) == ("not_compared", None)
        assert report.missing == some
        name = change[0].partition("=")[0]
        assert any(name.split(".")[0] in caveat.detail for caveat in row.caveats)


def test_code_and_machines_of_a_row_are_noted(mlrc, cells, tmp_path):
    for seed, revision in enumerate(("0123456789ab", "0123456789ab+")):
        cfg = mlrc("loss=mfcwms", f"seed={seed}")
        write_run(tmp_path, cfg, [[0.2] * 4], [0.2], git_revision=revision)
    notes = [
        str(caveat) for caveat in find_row(build(cells("mfcwms"), tmp_path), "mf_cwms").caveats
    ]
    assert any("uncommitted changes: 0123456789ab, 0123456789ab+" in note for note in notes)
    assert any("differ in git_revision" in note for note in notes)


def test_tests_of_all_pairs(cells, tmp_path):
    some = cells("arcface", "mfcont", "mfcwms")
    samples = [[value + shift for value in TEN] for shift in (0.0, 0.0002, 0.001)]
    for values, cell in zip(samples, some, strict=True):
        write_run(tmp_path, cell.options, spread_over_folds(values), TEN)
    report = build(some, tmp_path)
    section = report.sections[0]
    assert [row.key.method for row in section.tested] == ["arcface", "mf_contrastive", "mf_cwms"]
    raw = {
        (a, b): stats.ttest_ind(samples[a], samples[b], equal_var=False).pvalue
        for a, b in ((0, 1), (0, 2), (1, 2))
    }
    small, middle, large = sorted(raw, key=lambda pair: raw[pair])
    corrected = {small: 3 * raw[small], middle: 2 * raw[middle], large: raw[large]}
    tests = section.tests.set_index(["row", "other"])
    for pair in raw:
        assert tests.p_value[pair] == pytest.approx(raw[pair], rel=1e-6, abs=0)
        assert tests.corrected[pair] == pytest.approx(corrected[pair], rel=1e-6, abs=0)
        assert tests.corrected[pair[::-1]] == tests.corrected[pair]
    # Table 6 of the paper has marks against ArcFace, none between the mean field losses.
    columns = {column.title: column.cells for column in section_table(section, report).columns}
    assert columns["better than"] == ["", "", "arcface, mfcont"]
    assert columns["in the paper"] == ["", "arcface", "arcface"]


def test_different_budgets_are_not_tested(mlrc, cells, tmp_path):
    folds = spread_over_folds(TEN)
    write_run(tmp_path, mlrc("loss=mfcwms", "protocol.epochs=5"), folds, TEN)
    write_run(tmp_path, mlrc("loss=arcface"), folds, TEN)
    report = build(cells("mfcwms", "arcface"), tmp_path)
    assert all(section.tests.empty for section in report.sections)


def rejected_by_holm(p_values: list[float]) -> set[int]:
    """The positions of p-values that Holm's step-down procedure rejects at 5 %."""
    rejected: set[int] = set()
    for position in sorted(range(len(p_values)), key=p_values.__getitem__):
        if p_values[position] > 0.05 / (len(p_values) - len(rejected)):
            break
        rejected.add(position)
    return rejected


@settings(max_examples=60, deadline=None)
@given(means=st.lists(st.sampled_from([0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0]), min_size=2, max_size=5))
def test_rows_differ_where_welch_and_holm_say_so(means):
    rows = [around(mean, 0.5 + 0.1 * place) for place, mean in enumerate(means)]
    key = ResultKey("cub", "bn_inception", 128, "mlrc", "separated", "ms")
    pairs = [*combinations(range(len(rows)), 2)]
    p_values = [
        float(stats.ttest_ind(rows[a].values, rows[b].values, equal_var=False).pvalue)
        for a, b in pairs
    ]
    rejected = rejected_by_holm(p_values)
    expected = {}
    for position, pair in enumerate(pairs):
        lower, higher = sorted(pair, key=lambda place: rows[place].mean)
        expected[lower, higher] = "below" if position in rejected else "overlap"
        expected[higher, lower] = "above" if position in rejected else "overlap"
    table = pair_tests([(key, row) for row in rows], "map_at_r", None)
    found = {(row.row, row.other): row.ours for row in table.itertuples()}
    assert found == expected


def test_one_of_three_pairs_that_is_significant_alone_only():
    key = ResultKey("cub", "bn_inception", 128, "mlrc", "separated", "ms")
    samples = [(key, around(mean, 0.5)) for mean in (0.0, 1.3, 0.6)]
    table = pair_tests(samples, "map_at_r", None)
    assert table.p_value.min() < 0.05 < table.corrected.min()
    assert set(table.ours) == {"overlap"}
