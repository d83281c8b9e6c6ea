"""What the page of a comparison says about its noise, with few searches and with enough."""

import numpy as np
import pandas as pd
import pytest

from studies.comparison.declaration import Claim
from studies.comparison.findings import list_dependent_claims
from studies.comparison.page import write_page
from studies.comparison.page_tables import trials_table
from studies.comparison.results import Results
from studies.comparison.statistics import Comparison, measure_noise
from studies.comparison.variation import (
    FEW,
    LargestShare,
    find_largest_share,
    pool_gain_error,
    pool_spread,
    spread_interval,
)
from tests.studies.test_comparison import STUDY, made, read_on_one_line, with_runs

MEANS = {"ms": 15, "contrastive": 20, "c1": 16}
CLAIM = Claim(better="contrastive", than="ms", source="a test")


def write_made_page(folder, searches):
    """Returns the text of a page of three arms with some searches each."""
    counts = {"searches": searches, "claimed_searches": searches}
    study = STUDY.model_copy(update={"claims": [CLAIM], "margin": None, **counts})
    write_page(study, with_runs(made(MEANS, searches)), folder, "made")
    return read_on_one_line(folder / "made.md")


def test_few_searches_have_caveats_at_ranks_and_claims(tmp_path):
    few = write_made_page(tmp_path, 2)
    assert "tests tell 3 of 3 apart; a description, since" in few
    assert "read their ranks as a description, not as a test" in few
    assert "**Few searches.** All arms have the pooled variance." in few
    assert "from three searches on" not in few
    assert "the searches (of two, both) chose an end" in few
    assert "such intervals are too narrow" in few
    enough = write_made_page(tmp_path, 3)
    assert "tests tell 3 of 3 apart. |" in enough
    for words in (
        "a description",
        "**Few searches.**",
        "of two, both",
        "too narrow",
        "sum of squares",
    ):
        assert words not in enough
    assert "with its standard error (SE) from three searches on." in enough


def test_failed_searches_are_spoken_of_only_where_there_are_some(tmp_path):
    assert "searches failed" not in write_made_page(tmp_path, 3).split("- **arm**")[0]
    with_failed = {**MEANS, "proxy_anchor": 9}
    study = STUDY.model_copy(update={"claims": [], "margin": None})
    write_page(study, with_runs(made(with_failed, 3)), tmp_path, "made")
    page = read_on_one_line(tmp_path / "made.md")
    assert "apart, without the arms whose searches failed." in page
    assert "What can be found" not in page, "no claim has an interval"


def test_an_estimate_that_is_the_declared_one_has_no_column(tmp_path):
    page = write_made_page(tmp_path, 3)
    columns = page.split("| claim | declared |")[1].split("| --- |")[0]
    # All arms are in one pool; c1 is in no claim.
    assert columns.split(" | ")[:-1] == [
        " own variances",
        "pool of the claims' arms",
        "without a search",
    ]
    assert "*Own variances*: those of the two arms alone" in page
    assert "*Pool of all arms*" not in page


def test_the_interval_of_the_pooled_standard_deviation_covers():
    rng = np.random.default_rng(0)
    index = pd.MultiIndex.from_product([list("abcd"), range(3)], names=["arm", "search"])
    inside = []
    for _ in range(400):
        noise = measure_noise(pd.Series(rng.normal(0, 0.7, 12), index), outlier=np.inf)
        low, high = spread_interval(noise)
        assert low < noise.pooled**0.5 < high
        inside.append(low < 0.7 < high)
    assert np.mean(inside) == pytest.approx(0.95, abs=0.03)


def test_claims_that_depend_on_the_estimate_of_the_noise_are_named():
    rows = {
        "better": ["ms", "c1", "snr", "nca"],
        "than": ["c2", "c2", "c2", "c2"],
        "verdict": ["better", "worse", "unknown", "better"],
        "own variances": ["better (+1.00 to +2.00)", "worse (-2.00 to -1.00)"]
        + 2 * ["unknown (…)"],
        "pool of all arms": ["better (…)", "unknown (…)", "better (…)", "better (…)"],
        "without a search": ["excludes 0 in 0 of 4 cases"] * 4,
    }
    assert list_dependent_claims(pd.DataFrame(rows)) == "`c1` above `c2`, `nca` above `c2`"
    assert list_dependent_claims(pd.DataFrame()) == ""


def test_the_arm_with_the_largest_share_of_the_noise_is_named(tmp_path):
    pairs = [(arm, search) for arm in ("a", "b", "c") for search in (0, 1)]
    index = pd.MultiIndex.from_tuples(pairs, names=["arm", "search"])
    scores = pd.Series([1.0, 3, 5, 6, 9, 9], index)  # sums of squares 2, 0.5 and 0
    share = find_largest_share(measure_noise(scores))
    assert share == LargestShare("a", pytest.approx(0.8), pytest.approx(0.5))  # (0.5 + 0) / 2
    assert find_largest_share(measure_noise(scores[:4])).other_pool == pytest.approx(0.5**0.5)
    assert find_largest_share(measure_noise(scores[2:])) is None, "one arm varies"
    more = pd.concat([scores, pd.Series([2.0], pd.MultiIndex.from_tuples([("a", 2)]))])
    assert find_largest_share(measure_noise(more.rename_axis(["arm", "search"]))) is None
    page = write_made_page(tmp_path, 2)
    assert "% of the sum of squares behind this value; without it the value would be" in page


def test_the_error_of_a_gain_is_pooled():
    rng = np.random.default_rng(0)
    gains = rng.normal(0, 1, (5, 2))
    errors = gains.std(1, ddof=1) / 2**0.5
    ranking = pd.DataFrame({"searches": [2] * 5 + [1], "gain_error": [*errors, np.nan]})
    pooled = gains.var(1, ddof=1).mean()
    assert pool_gain_error(ranking, 2) == pytest.approx((pooled / 2) ** 0.5)
    assert pool_gain_error(ranking[-1:], 2) is None


def test_a_pool_of_few_searches_is_not_set_beside_another():
    comparison = Comparison(STUDY, made({**MEANS, "triplet": 14}, 4))
    assert pool_spread(comparison, ["ms"]) is None
    assert pool_spread(comparison, ["ms", "c1"]) > 0
    assert 3 < FEW <= 6  # degrees of freedom of these pools


def test_trials_of_a_grid_of_one_option():
    trials = pd.DataFrame(
        {
            "arm": ["ms", "ms", "ms", "c1"],
            "search": [0, 0, 1, 0],
            "value": [10.0, 20, 30, 40],
            "optim.lr": [1e-4, 1e-3, 1e-3, 1e-4],
        }
    )
    results = Results(pd.DataFrame(), pd.DataFrame(), pd.DataFrame(), trials)
    study = STUDY.model_copy(update={"options": ["search=grid"], "arms": {"c1": [], "ms": []}})
    header, _, *rows = trials_table(study, results).splitlines()
    assert header == "| arm | `optim.lr=0.0001` | `optim.lr=0.001` |"
    assert rows == ["| `c1` | 40.0 | – |", "| `ms` | 10.0 | 25.0 |"]
    assert trials_table(STUDY, results) == "", "not a grid"
    two = results._replace(trials=trials.assign(margin=1))
    assert trials_table(study, two) == ""
