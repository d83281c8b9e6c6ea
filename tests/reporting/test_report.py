"""Whole reports on runs written by hand: rows, numbers, marks, tests, what is missing."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf
from scipy import stats

from dml.reporting.comparison import Verdict
from dml.reporting.report import Report, build
from dml.reporting.rows import swept
from tests.reporting.made_runs import MadeCell, node, write_run

TEN = [0.2205, 0.2215, 0.2211, 0.2209, 0.2212, 0.2207, 0.2218, 0.2210, 0.2206, 0.2207]


def report(cells, root) -> Report:
    return build("mft_table1", cells, root, OmegaConf.to_container(cells[0].config.experiment))


def folds(values):
    return [[value - 0.01, value, value, value + 0.01] for value in values]


def row_of(found: Report, method: str, evaluation: str = "separated"):
    (row,) = [
        row
        for row in found.rows
        if (row.facts.method, row.facts.evaluation) == (method, evaluation)
    ]
    return row


def test_numbers_and_verdicts(cells, tmp_path):
    some = cells("mfcwms", "arcface")
    write_run(tmp_path, some[0].config, folds(TEN), [v + 0.05 for v in TEN], metric="map_at_r")
    found = report(some, tmp_path)
    number = row_of(found, "mf_cwms").numbers["map_at_r"]
    percent = [100 * v for v in TEN]
    assert number.ours.values == pytest.approx(percent)
    low, high = stats.t.interval(0.95, 9, sum(percent) / 10, stats.sem(percent))
    assert number.ours.mean - number.ours.ci95 == pytest.approx(low)
    assert number.ours.mean + number.ours.ci95 == pytest.approx(high)
    assert str(number.printed) == "22.11 ± 0.08"  # Table 3, not 22.1 of Table 1
    assert number.comparison.verdict == Verdict.OVERLAP
    assert number.comparison.difference == pytest.approx(22.10 - 22.11)
    deviation = 0.08 * 10**0.5 / stats.t.ppf(0.975, 9)
    expected = stats.ttest_ind_from_stats(
        22.10, stats.tstd(percent), 10, 22.11, deviation, 10, equal_var=False
    ).pvalue
    assert number.comparison.p_value == pytest.approx(expected)
    joined = row_of(found, "mf_cwms", "concatenated").numbers["map_at_r"]
    assert joined.comparison.difference == pytest.approx(27.10 - 27.03)
    assert row_of(found, "mf_cwms").marks == ()


def test_only_metrics_of_the_dataset_are_shown(cells, tmp_path):
    some = cells("mfcwms")
    write_run(tmp_path, some[0].config, folds(TEN), TEN)
    node = OmegaConf.to_container(some[0].config.experiment)
    node["metrics"] = ["recall_at_100", "map_at_r", "recall_at_10"]
    found = build("mft_table1", some, tmp_path, node)
    assert [section.metrics for section in found.sections] == [["map_at_r"], ["map_at_r"]]


def test_what_is_missing(cells, tmp_path):
    some = cells("mfcwms", "arcface")
    write_run(tmp_path, some[0].config, folds(TEN), TEN)
    found = report(some, tmp_path)
    assert (found.cells, found.status) == (2, "1 of 2 cells run")
    assert list(found.missing) == [some[1]]
    row = row_of(found, "arcface")
    assert row.group is None
    assert str(row.numbers["map_at_r"].printed) == "21.46 ± 0.13"


@pytest.mark.parametrize(
    ("change", "codes"),
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
def test_what_differs_from_the_cell_is_marked(mlrc, cells, tmp_path, change, codes):
    cfg = mlrc("loss=mfcwms", "protocol.repeats=10", *change)
    repeats = cfg.protocol.repeats
    write_run(tmp_path, cfg, folds(TEN[:repeats]), TEN[:repeats])
    some = cells("mfcwms")
    found = report(some, tmp_path)
    row = row_of(found, "mf_cwms")
    assert "".join(mark.code for mark in row.marks) == codes
    comparison = row.numbers["map_at_r"].comparison
    if codes == "R":
        assert comparison.difference is not None
        assert found.missing == ()
    else:
        assert (comparison.verdict, comparison.difference) == (Verdict.NOT_COMPARED, None)
        assert list(found.missing) == some
        name = change[0].partition("=")[0]
        assert any(name.split(".")[0] in mark.detail for mark in row.marks)


def test_stand_ins_have_no_printed_number(mlrc, cells, tmp_path):
    write_run(tmp_path, mlrc("loss=mfcwms", "data=glyphs"), folds(TEN), TEN)
    found = report(cells("mfcwms"), tmp_path)
    assert found.status == "stand-in only (1 cells)"
    section = found.sections[0]
    assert section.stand_in
    assert "stand-in data" in section.title
    (row,) = section.rows
    assert [mark.code for mark in row.marks] == ["S"]
    assert all(number.printed is None for number in row.numbers.values())


def test_runs_that_fit_no_cell(mlrc, cells, tmp_path):
    write_run(tmp_path, mlrc("loss=triplet"), folds(TEN), TEN)
    row = row_of(report(cells("mfcwms"), tmp_path), "triplet")
    assert [mark.code for mark in row.marks] == ["X"]
    assert row.numbers["map_at_r"].printed is None


def test_provenance_is_marked(mlrc, cells, tmp_path):
    write_run(tmp_path, mlrc("loss=mfcwms", "seed=0"), folds(TEN), TEN, git_revision="ab12+")
    write_run(tmp_path, mlrc("loss=mfcwms", "seed=1"), folds(TEN), TEN, device="other")
    row = row_of(report(cells("mfcwms"), tmp_path), "mf_cwms")
    assert [mark.code for mark in row.marks] == ["C", "M"]
    assert row.marks[1].detail == "git_revision, device"
    assert row.numbers["map_at_r"].ours.n == 20


def test_tests_of_all_pairs(cells, tmp_path):
    some = cells("arcface", "mfcont", "mfcwms")
    shifted = {0: 0.0, 1: 0.0002, 2: 0.01}
    for number, cell in enumerate(some):
        write_run(tmp_path, cell.config, folds([v + shifted[number] for v in TEN]), TEN)
    found = report(some, tmp_path)
    (family,) = found.sections[0].families
    assert [row.facts.method for row in family.rows] == ["arcface", "mf_contrastive", "mf_cwms"]
    samples = [[100 * (v + shifted[number]) for v in TEN] for number in range(3)]
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


def test_unequal_budgets_are_not_tested(mlrc, cells, tmp_path):
    write_run(tmp_path, mlrc("loss=mfcwms", "protocol.epochs=5"), folds(TEN), TEN)
    write_run(tmp_path, mlrc("loss=arcface"), folds(TEN), TEN)
    found = report(cells("mfcwms", "arcface"), tmp_path)
    assert all(not section.families for section in found.sections)


def test_runs_of_no_experiment(composed, tmp_path):
    for seed in (0, 1, 2):
        write_run(tmp_path, composed(f"seed={seed}"), [[0.4 + seed / 100]])
        write_run(tmp_path, composed(f"seed={seed}", "optim.lr=1e-5"), [[0.3 + seed / 100]])
    found = build("single", (), tmp_path, {})
    assert found.status == "2 configurations"
    assert {row.label for row in found.rows} == {"optim.lr=0.003", "optim.lr=1e-05"}
    assert {row.numbers["map_at_r"].ours.n for row in found.rows} == {3}
    assert {mark.code for row in found.rows for mark in row.marks} == {"S"}
    assert found.missing == ()
    (family,) = found.sections[0].families
    assert len(family.tests) == 2


def test_settings_and_swept_options_name_rows(composed, tmp_path):
    of = node("mft_table12", tables=["T12"], metrics=["map_at_r"])
    cells = []
    for alpha in ("0.1", "10"):
        words = ("data=cub", f"loss.alpha={alpha}", "protocol.repeats=10")
        cfg = composed(*of, *words, "experiment.setting='alpha=${loss.alpha}'")
        cells.append(MadeCell(cfg, (f"loss.alpha={alpha}", "data=cub")))
    assert swept(cells) == ("loss.alpha",)
    write_run(tmp_path, cells[1].config, [[0.26], [0.25]])
    found = build("mft_table12", cells, tmp_path, {"source": "mft", "tables": ["T12"]})
    assert [row.label for row in found.rows] == ["alpha 0.1", "alpha 10"]
    assert str(found.rows[1].numbers["map_at_r"].printed) == "25.5 ± 0.3"
    assert found.rows[1].numbers["map_at_r"].comparison.difference == pytest.approx(0.0)
    assert found.rows[0].group is None
