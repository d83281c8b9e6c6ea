"""Claims are tested as scipy would, on made results and on those that docs/results ships."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dml.cli.report_command import main
from dml.core.errors import ConfigError
from dml.reporting.catalog import load_experiment
from dml.reporting.claims.claim_tests import Claim, evaluate_claims, read_claims
from dml.reporting.claims.seed_results import SeedResult, read_csv, write_csv

SHIPPED = Path(__file__).resolve().parents[3] / "docs" / "results"
PAGES = [path for path in sorted(SHIPPED.glob("claims_*.csv")) if "_curves" not in path.stem]
BASE = SeedResult(
    arm="a", repeat=0, map_at_r=50.0, recall_at_1=80.0, best_on_test=51.0, best_step=500,
    steps_to_95=300, stages=None, chosen="optim.lr=0.001", trials=6, run="0a1b2c3d",
    revision="0123456789ab", device="cpu", torch="2.15.0", command="python train.py",
)  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_command_recomputes_the_verdicts_of_a_page(page, capsys):
    assert main([page.stem, "--results", str(page)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    text = page.with_suffix(".md").read_text(encoding="utf-8")
    rows = re.findall(r"\| (\S+ ± \S+) \| [^|]* \| (?:holds|does not|undecided|not tested)", text)
    assert len(rows) >= 1
    assert all(row in out for row in rows)


def test_other_files_are_refused(tmp_path, capsys):
    other = SHIPPED / "claims_mean_field_curves.csv"
    assert main(["claims_mean_field", "--results", str(other)]) == 1
    assert "does not hold results of claims" in capsys.readouterr().err
    other = SHIPPED / "claims_mean_field.csv"
    assert main(["claims_potential_field", "--results", str(other)]) == 1
    assert "holds no results of claims_potential_field" in capsys.readouterr().err


def made_results(seeds=10, **shifts):
    """Results of arms whose MAP@R is shifted, in the order of seeds, not of arms."""
    rng = np.random.default_rng(0)
    common = rng.normal(50, 2, seeds)
    return [
        replace(
            BASE,
            arm=arm,
            repeat=repeat,
            map_at_r=float(common[repeat] + shift + rng.normal(0, 0.5)),
            steps_to_95=int(300 - 20 * shift + rng.integers(-3, 4)),
        )
        for repeat in range(seeds)
        for arm, shift in shifts.items()
    ]


def column(results, arm, measure="map_at_r"):
    own = sorted((one.repeat, getattr(one, measure)) for one in results if one.arm == arm)
    return np.array([value for _, value in own], dtype=float)


def test_p_values_and_intervals_are_those_of_scipy():
    results = made_results(a=3.0, b=0.0, c=0.1)
    claims = [Claim("", "a", "b", ("map_at_r",)), Claim("", "b", "a", ("map_at_r", "steps_to_95"))]
    claims.append(Claim("", "c", "b", ("map_at_r",)))
    tests = evaluate_claims(claims, results)
    expected = [stats.ttest_rel(column(results, *x), column(results, *y)).pvalue for x, y in (
        (("a",), ("b",)), (("b",), ("a",)), (("b", "steps_to_95"), ("a", "steps_to_95")),
        (("c",), ("b",)),
    )]  # fmt: skip
    assert [one.difference.p_value for one in tests] == pytest.approx(expected, rel=1e-12)
    first = stats.ttest_rel(column(results, "a"), column(results, "b")).confidence_interval()
    difference = tests[0].difference
    assert difference.mean - difference.half_width == pytest.approx(first.low, rel=1e-12)
    assert difference.mean + difference.half_width == pytest.approx(first.high, rel=1e-12)
    assert [one.verdict for one in tests] == ["holds", *["does not hold"] * 2, "undecided"]
    smallest = min(expected)
    assert min(one.corrected for one in tests) == pytest.approx(4 * smallest)  # Holm's first step
    assert all(one.corrected >= one.difference.p_value for one in tests)


def test_a_loss_by_noise_is_compared_with_the_other_loss():
    results = made_results(a=0.0, b=0.0, noisy_a=-1.0, noisy_b=-6.0)
    claim = Claim("", "noisy_a", "noisy_b", ("map_at_r",), relative_to=("a", "b"))
    (test,) = evaluate_claims([claim], results)
    losses = [column(results, f"noisy_{arm}") - column(results, arm) for arm in "ab"]
    assert test.difference.mean == pytest.approx((losses[0] - losses[1]).mean())
    assert test.difference.p_value == pytest.approx(stats.ttest_rel(*losses).pvalue)


def test_the_detectable_difference_is_found_four_times_out_of_five():
    (test,) = evaluate_claims([Claim("", "a", "b", ("map_at_r",))], made_results(a=1.0, b=0.0))
    difference = test.difference
    rng = np.random.default_rng(1)
    drawn = rng.normal(difference.detectable, difference.std, (20_000, difference.n))
    found = (stats.ttest_1samp(drawn, 0, axis=1).pvalue <= 0.05).mean()
    assert found == pytest.approx(0.8, abs=0.012)


def test_arms_without_runs_and_seeds_without_a_partner_are_left_out():
    results = made_results(a=3.0, b=0.0)[:-1]  # the last seed of b
    (test,) = evaluate_claims([Claim("", "a", "b", ("map_at_r",))], results)
    assert test.difference.n == 9
    assert evaluate_claims([Claim("", "a", "c")], results) == []


def test_unknown_keys_of_a_claim_are_named():
    with pytest.raises(ConfigError, match=r"experiment\.claims: .*'versus'"):
        read_claims([{"text": "", "arm": "a", "versus": "b"}])


def test_results_survive_csv(tmp_path):
    results = [replace(BASE, map_at_r=1 / 3, stages=4), BASE]
    (tmp_path / "results.csv").write_text(write_csv(results))
    assert read_csv(tmp_path / "results.csv") == results


@pytest.mark.parametrize("path", PAGES, ids=lambda one: one.stem)
def test_shipped_pages_say_what_scipy_finds_in_their_csv(path):
    results = read_csv(path)
    claims = read_claims(load_experiment(path.stem).claims)
    found = evaluate_claims(claims, results)
    raw = []
    for one in found:
        sign = -1 if one.measure == "steps_to_95" else 1
        arms = [sign * column(results, arm, one.measure) for arm in one.claim.arms]
        if one.claim.relative_to:
            arms = [arms[0] - arms[2], arms[1] - arms[3]]
        if one.verdict == "not tested":  # scipy divides zero by zero
            assert (arms[0] == arms[1]).all()
            raw.append(1.0)
            continue
        test = stats.ttest_rel(arms[0], arms[1])
        raw.append(float(test.pvalue))
        low, high = test.confidence_interval()
        assert one.difference.mean - one.difference.half_width == pytest.approx(low)
        assert one.difference.mean + one.difference.half_width == pytest.approx(high)
    assert [one.difference.p_value for one in found] == pytest.approx(raw)
    page = path.with_suffix(".md").read_text(encoding="utf-8").partition("## Arms")[0]
    table = re.findall(r"\| ([+-][\d.]+) ± ([\d.]+) \|", page)
    expected = [(one.difference, one.digits) for one in found]
    assert table == [(f"{d.mean:+.{n}f}", f"{d.half_width:.{n}f}") for d, n in expected]
    assert len({result.trials for result in results}) == 1, "no arm got more search than another"


def test_equal_runs_test_nothing():
    results = made_results(a=1.0)
    results += [replace(one, arm="b") for one in results]
    (test,) = evaluate_claims([Claim("", "a", "b", ("map_at_r",))], results)
    assert test.verdict == "not tested"
