"""The shipped tables of printed numbers, against numbers read in the papers."""

from __future__ import annotations

import pytest

from dml.core.statistics import Moments
from dml.reporting.caveats import others_number
from dml.reporting.published_results import ResultKey, printed, settings, significance

CUB = ResultKey("cub", "bn_inception", 128, "mlrc", "separated", "mf_cwms")
ALPHA = ResultKey("cub", "bn_inception", 512, "traditional", "single", "mf_cwms", "alpha=10")


def test_the_number_with_the_most_digits_counts():
    found = printed(CUB, "map_at_r", "mft", ("T1", "T3"))
    assert (str(found), found.table, found.runs, found.origin) == ("22.11 ± 0.08", "T3", 10, "own")
    assert printed(CUB, "map_at_r", "mft", ("T1",)).text == "22.1"


def test_the_authors_own_run_counts_before_a_quoted_one():
    facts = ResultKey("cub", "resnet50", 512, "metrix_standard", "single", "proxy_anchor")
    assert printed(facts, "recall_at_1", "metrix", ("T2", "T5")).origin == "own"


@pytest.mark.parametrize(
    "change",
    [
        {"data": "cars"},
        {"backbone": "resnet50"},
        {"dim": 512},
        {"protocol": "traditional"},
        {"evaluation": "single"},
        {"setting": "alpha=10"},
        {"method": "hist"},
    ],
)
def test_any_other_fact_is_another_number(change):
    found = printed(ResultKey(**{**CUB.__dict__, **change}), "map_at_r", "mft", ("T3",))
    assert found is None or found.text != "22.11"


@pytest.mark.parametrize("setting", ["alpha=10", "alpha=10.0", "alpha=1e1"])
def test_settings_are_numbers_not_spellings(setting):
    facts = ResultKey(**{**ALPHA.__dict__, "setting": setting})
    assert str(printed(facts, "map_at_r", "mft", ("T12",))) == "25.5 ± 0.3"


def test_settings_in_any_order():
    assert settings("a=1;b=x") == settings(" b=x ; a=1.0 ")
    assert settings(None) == settings("") == {}


def test_what_a_paper_does_not_say_fits_everything():
    facts = ResultKey("cub", "resnet50", 512, "pfml_standard", "single", "soft_triple")
    assert str(printed(facts, "w2", "pfml", ("T3",))) == "0.24 ± 0.04"


def test_intervals_by_kind():
    ci95 = printed(CUB, "map_at_r", "mft", ("T3",))
    assert ci95.interval == pytest.approx((22.03, 22.19))
    # 0.08 × sqrt(10) / 2.262157 (t, nine degrees of freedom)
    assert ci95.moments == Moments(22.11, pytest.approx(0.1118323, rel=1e-5), 10)
    facts = ResultKey("cub", "", None, "pfml_standard", "single", "soft_triple")
    std = printed(facts, "w2", "pfml", ("T3",))
    half = 2.776445 * 0.04 / 5**0.5  # t, four degrees of freedom
    assert std.interval == pytest.approx((0.24 - half, 0.24 + half), rel=1e-6)
    facts = ResultKey("cars", "resnet50", 512, "metrix_standard", "single", "contrastive")
    bare = printed(facts, "recall_at_4", "metrix", ("T6",))
    assert (bare.text, bare.moments) == ("92.7", None)
    assert bare.interval == pytest.approx((92.65, 92.75))


def test_steps_are_printed_in_thousands():
    facts = ResultKey("sop", "bn_inception", 128, "mlrc", "separated", "c2")
    assert printed(facts, "train_steps", "ccp", ("T5",)).interval == (61500, 62500)


@pytest.mark.parametrize(("method", "code"), [("pfml", []), ("ms", ["Q"])])
def test_a_number_that_is_not_the_authors_own_is_marked(method, code):
    facts = ResultKey("cub", "bn_inception", 128, "mlrc", "separated", method)
    one = printed(facts, "map_at_r", "pfml", ("T7",))
    assert [mark.code for mark in others_number(one)] == code
    assert not any(mark.blocks for mark in others_number(one))


def test_marks_of_the_paper():
    cars = ResultKey("cars", "bn_inception", 128, "mlrc", "concatenated", "mf_contrastive")
    assert significance(cars, "arcface", "map_at_r", "mft") == "worse"
    assert significance(cars, "proxy_anchor", "map_at_r", "mft") == "better"
    separated = ResultKey("cars", "bn_inception", 128, "mlrc", "separated", "mf_contrastive")
    assert significance(separated, "arcface", "map_at_r", "mft") == "no difference"
    assert significance(separated, "contrastive", "map_at_r", "mft") is None
    assert significance(separated, "arcface", "precision_at_1", "mft") is None
