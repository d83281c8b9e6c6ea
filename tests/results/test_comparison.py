"""Verdicts computed by hand from Student's t-interval and the published one."""

from __future__ import annotations

import pytest

from dml.core.statistics import Estimate
from dml.results.caveats import Caveat, CaveatKind
from dml.results.comparison import Verdict, compare
from dml.results.published_results import PublishedResult

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
        (around(20.0, 0.1), make_result("20.4", "0.2", "ci95", 10), Verdict.OVERLAP),
        # against 20.5 ± 0.2: 20.248 is below 20.3
        (around(20.0, 0.1), make_result("20.5", "0.2", "ci95", 10), Verdict.BELOW),
        (around(21.0, 0.1), make_result("20.5", "0.2", "ci95", 10), Verdict.ABOVE),
        # std 0.2 of 5 runs is ± 2.776445 × 0.2 / sqrt(5) = 0.2483: 20.248 is below 20.2517
        (around(20.0, 0.1), make_result("20.5", "0.2", "std", 5), Verdict.BELOW),
        (around(20.0, 0.1), make_result("20.49", "0.2", "std", 5), Verdict.OVERLAP),
        # no interval: 20.248 reaches 20.25, the least that is published as 20.3, only from 20.002
        (around(20.0, 0.1), make_result("20.3"), Verdict.BELOW),
        (around(20.01, 0.1), make_result("20.3"), Verdict.OVERLAP),
        # a ± of unknown meaning is no interval
        (around(20.0, 0.1), make_result("20.3", "5", "unstated"), Verdict.BELOW),
        (Estimate((20.0,)), make_result("20.3", "0.2", "ci95", 10), Verdict.ONE_RUN),
    ],
)
def test_verdicts(ours, published, verdict):
    found = compare(ours, published, [], "map_at_r")
    assert found.verdict == verdict
    assert found.difference == pytest.approx(ours.mean - published.value)


def test_p_value_against_the_published_mean():
    from scipy import stats

    values = (20.0, 20.2, 20.4)
    published = make_result("20.6", "0.2", "std", 5)
    found = compare(Estimate(values), published, [], "map_at_r").p_value
    # A sample with the published mean and deviation: 20.6 ± 0.2 × sqrt(4 / 2) at both ends.
    end = 0.2 * 2**0.5
    sample = (20.6 - end, 20.6, 20.6, 20.6, 20.6 + end)
    assert found == pytest.approx(stats.ttest_ind(values, sample, equal_var=False).pvalue)
    bare = compare(Estimate(values), make_result("20.6"), [], "map_at_r")
    assert bare.p_value is None


@pytest.mark.parametrize("kind", [kind for kind in CaveatKind if kind.code in "SDPENWBOX"])
def test_blocking_caveats_leave_numbers_uncompared(kind):
    found = compare(around(20.0, 0.1), make_result("20.4"), [Caveat(kind)], "map_at_r")
    assert (found.verdict, found.difference, found.p_value) == (Verdict.NOT_COMPARED, None, None)


@pytest.mark.parametrize("kind", [kind for kind in CaveatKind if kind.code in "TRQCM"])
def test_other_caveats_do_not(kind):
    found = compare(around(20.0, 0.1), make_result("20.4"), [Caveat(kind)], "map_at_r")
    assert found.difference == pytest.approx(-0.4)


def test_times_are_never_compared():
    found = compare(around(14.0, 0.1), make_result("14.2"), [], "epoch_seconds")
    assert found.verdict == Verdict.NOT_COMPARED
