"""The tables of published results, against numbers read in the papers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dml.core.statistics import Moments
from dml.results.compare import BLOCKING, is_comparable, result_caveats
from dml.results.frame import load_runs
from dml.results.nearest import find_nearest
from dml.results.published import ResultKey, find_results, parse_setting, published_significance
from dml.runs.folder.stored_run import read_run
from tests.results.made_runs import build, make_cell, node, write_run

CUB = ResultKey("cub", "bn_inception", 128, "mlrc", "separated", "mf_cwms")
ALPHA = ResultKey("cub", "bn_inception", 512, "traditional", "single", "mf_cwms", "alpha=10")


def find_result(*query):
    """The result that counts first."""
    return next(iter(find_results(*query)), None)


def test_the_number_with_the_most_digits_counts():
    found = find_result(CUB, "map_at_r", "mft", ("T1", "T3"))
    assert (str(found), found.table, found.runs, found.origin) == ("22.11 ± 0.08", "T3", 10, "own")
    assert find_result(CUB, "map_at_r", "mft", ("T1",)).text == "22.1"


def test_the_authors_own_run_counts_before_a_quoted_one():
    key = ResultKey("cub", "resnet50", 512, "metrix_standard", "single", "proxy_anchor")
    assert find_result(key, "recall_at_1", "metrix", ("T2", "T5")).origin == "own"


OTHERS = {"data": "cars", "backbone": "resnet50", "dim": 512, "protocol": "traditional",
          "evaluation": "single", "setting": "alpha=10", "method": "hist"}  # fmt: skip


@pytest.mark.parametrize("field", OTHERS)
def test_another_key_is_another_number(field):
    found = find_result(replace(CUB, **{field: OTHERS[field]}), "map_at_r", "mft", ("T3",))
    assert found is None or found.text != "22.11"


def test_settings_compare_as_numbers_in_any_order():
    key = replace(ALPHA, setting="alpha=1e1")
    assert str(find_result(key, "map_at_r", "mft", ("T12",))) == "25.5 ± 0.3"
    assert parse_setting("a=1;b=x") == parse_setting(" b=x ; a=1.0 ")
    assert parse_setting(None) == {}


def test_an_empty_column_matches_everything():
    key = ResultKey("cub", "resnet50", 512, "pfml_standard", "single", "soft_triple")
    assert str(find_result(key, "w2", "pfml", ("T3",))) == "0.24 ± 0.04"


def test_intervals_by_kind():
    ci95 = find_result(CUB, "map_at_r", "mft", ("T3",))
    assert ci95.interval == pytest.approx((22.03, 22.19))
    # 0.08 × sqrt(10) / 2.262157 (t, nine degrees of freedom)
    assert ci95.moments == Moments(22.11, pytest.approx(0.1118323, rel=1e-5), 10)
    key = ResultKey("cub", "", None, "pfml_standard", "single", "soft_triple")
    std = find_result(key, "w2", "pfml", ("T3",))
    half = 2.776445 * 0.04 / 5**0.5  # t, four degrees of freedom
    assert std.interval == pytest.approx((0.24 - half, 0.24 + half), rel=1e-6)
    key = ResultKey("cars", "resnet50", 512, "metrix_standard", "single", "contrastive")
    bare = find_result(key, "recall_at_4", "metrix", ("T6",))
    assert (bare.text, bare.moments) == ("92.7", None)
    assert bare.interval == pytest.approx((92.65, 92.75))


def test_steps_are_printed_in_thousands():
    key = ResultKey("sop", "bn_inception", 128, "mlrc", "separated", "c2")
    assert find_result(key, "train_steps", "ccp", ("T5",)).interval == (61500, 62500)


@pytest.mark.parametrize(("method", "code"), [("pfml", []), ("ms", ["N"])])
def test_a_result_of_others_has_a_caveat(method, code):
    key = ResultKey("cub", "bn_inception", 128, "mlrc", "separated", method)
    one = find_result(key, "map_at_r", "pfml", ("T7",))
    assert [caveat.mark for caveat in result_caveats(10, one)] == code
    assert not set(code) & set(BLOCKING)


def test_significance_marks_of_the_paper():
    cars = ResultKey("cars", "bn_inception", 128, "mlrc", "concatenated", "mf_contrastive")
    separated = replace(cars, evaluation="separated")

    def mark(key, against, metric="map_at_r"):
        return published_significance(key, replace(key, method=against), metric, "mft")

    assert mark(cars, "arcface") == "below"
    assert mark(cars, "proxy_anchor") == "above"
    assert mark(separated, "arcface") == "overlap"
    assert mark(separated, "contrastive") == mark(separated, "arcface", "precision_at_1") == ""


def test_the_nearest_result_differs_in_the_fewest_points(composed, tmp_path):
    words = ("data=cub", "backbone=resnet50", "loss=mfcwms")
    run = read_run(write_run(tmp_path, composed(*words), [[0.3]]))
    nearest = find_nearest(run)
    assert nearest == "MAP@R 25.3 (backbone, repeats)"
    assert nearest.hint.startswith("MAP@R 25.3 ± 0.3 (Mean field theory, Table 2), with ")
    assert "bn_inception instead of resnet50; 10 repeats instead of 1" in nearest.hint
    validated = composed(*words[:2], "loss=mfcwms", "protocol=validation")
    nearest = find_nearest(read_run(write_run(tmp_path, validated, [[0.3]])))
    assert "selection on test classes instead of validation classes" in nearest.hint
    alone = composed("data=sop", "loss=smooth_ap", "backbone=resnet50")  # of no paper's tables
    assert "smooth_ap" in find_nearest(read_run(write_run(tmp_path, alone, [[0.3]]))).hint
    stand_in = read_run(write_run(tmp_path, composed("data=digits"), [[0.3]]))
    assert find_nearest(stand_in) is None


PRINTED = {
    "source": "mft",
    "table": "T2",
    "origin": "own",
    "line": "1",
    "spread": "",
    "spread_kind": "",
    "runs": "10",
}
LIKE_THE_RUN = {"protocol": "", "evaluation": "", "backbone": "resnet50", "dim": "", "setting": ""}


def print_rows(monkeypatch, method, *rows):
    """Lets papers print these rows on CUB alone, each with the columns that it names."""

    def rows_of(column, value, metric):
        assert (column, value) == ("dataset", "cub")
        whole = [{"method": method, **PRINTED, **LIKE_THE_RUN, **row} for row in rows]
        return [row for row in whole if row["metric"] == metric]

    monkeypatch.setattr("dml.results.nearest.rows_of", rows_of)


MAP = {"metric": "map_at_r", "value": "20.1"}
RECALL = {"metric": "recall_at_1", "value": "60.2"}


@pytest.mark.parametrize(
    ("rows", "nearest"),
    [
        ([MAP], "MAP@R 20.1 (repeats)"),  # empty columns hold for every run
        ([MAP | {"dim": "64"}], "MAP@R 20.1 (dim, repeats)"),
        ([MAP | {"setting": "x=1"}, RECALL], "Recall@1 60.2 (repeats)"),
        ([RECALL, MAP], "MAP@R 20.1 (repeats)"),  # the metric decides between equals only
        ([MAP | {"dim": "64", "backbone": "x"}, MAP | {"value": "30.0", "dim": "64"}],
         "MAP@R 30.0 (dim, repeats)"),
        ([MAP | {"runs": "2"}], "MAP@R 20.1"),
        ([MAP | {"runs": ""}], "MAP@R 20.1"),
    ],
)  # fmt: skip
def test_the_nearest_of_some_rows(composed, tmp_path, monkeypatch, rows, nearest):
    words = ("data=cub", "backbone=resnet50", "loss=mfcwms")
    folds = [[0.3, 0.4, 0.5, 0.6]] * 2
    run = read_run(write_run(tmp_path, composed(*words), folds))
    print_rows(monkeypatch, run.summary.result_id, *rows)
    found = find_nearest(run)
    assert found == nearest
    if "repeats" in nearest:
        assert "10 repeats instead of 2" in found.hint
        assert "repeats" not in find_nearest(run, repeats=10)


VARIANTS = {
    "cub_boxes": ("cub", "data.crop=boxes"),
    "cars_boxes": ("cars", "data.crop=boxes"),
    "inshop_highres": ("inshop", "data.images=highres"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_other_images_than_the_papers_stand_beside_none_of_their_numbers(composed, tmp_path, name):
    data, option = VARIANTS[name]
    plain = composed(*node("mft_table1"), "protocol=mlrc", f"data={data}", "loss=mfcwms")
    other = composed(*node("mft_table1"), "protocol=mlrc", f"data={data}", "loss=mfcwms", option)
    for config in (plain, other):
        write_run(tmp_path, config, [[0.25] * 4], [0.25])
    report = build([make_cell(plain, "mfcwms")], tmp_path)
    rows = {row.key.data: row for row in report.rows}
    assert set(rows) == {data, name}
    assert is_comparable(rows[data].caveats)
    assert not is_comparable(rows[name].caveats)
    assert rows[name].score("map_at_r").published is None
    runs = {run.config.data: run for run in load_runs(tmp_path).distinct}
    assert find_nearest(runs[name]) is None
    assert find_nearest(runs[data]) is not None
