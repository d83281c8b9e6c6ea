"""Settings of runs of no experiment: columns for what differs, labels in figures."""

from __future__ import annotations

import pytest

from dml.reporting.catalog import load_experiment
from dml.reporting.report import build_report
from dml.reporting.settings import setting_columns
from dml.reporting.tables import build_grid
from tests.reporting.made_runs import write_run


@pytest.fixture
def own(composed, tmp_path):
    """Writes runs with these overrides; returns their report."""

    def of(*overrides: str):
        for number, words in enumerate(overrides):
            write_run(tmp_path, composed(*words.split()), [[0.3 + number / 100]])
        return build_report(load_experiment("single"), (), tmp_path)

    return of


def test_what_differs_is_a_column(own):
    report = own(
        "loss=ms protocol.epochs=3", "loss=ms protocol.epochs=12", "loss=mfcont protocol.epochs=3"
    )
    header, lines = build_grid(report.sections[0], report)
    assert header[:3] == ["method", "epochs", "MAP@R"]
    assert [line[:2] for line in lines] == [["mfcont", "3"], ["ms", "3"], ["ms", "12"]]
    assert [row.name for row in report.rows] == ["mfcont", "ms (epochs 3)", "ms (epochs 12)"]


def test_arguments_of_a_loss_are_a_column_only_where_its_rows_differ(own):
    report = own("loss=ms", "loss=mfcont")
    assert report.sections[0].settings == ()
    report = own("loss=ms loss.alpha=3")
    (section,) = report.sections
    assert section.settings == ("loss.alpha",)
    assert [line[1] for line in build_grid(section, report)[1]] == ["–", "2", "3"]


def test_loss_and_method_are_the_name(own):
    report = own("loss=ms method=metrix", "loss=ms")
    assert [row.name for row in report.rows] == ["ms", "ms + metrix"]


def test_many_settings_share_the_last_column():
    names = [f"optim.a{number}" for number in range(8)]
    columns = setting_columns(names)
    assert list(columns) == ["a0", "a1", "a2", "a3", "a4", "a5", "other settings"]


def test_a_name_that_all_rows_share_is_in_the_title(own):
    report = own("loss=ms name=baseline", "loss=mfcont name=baseline")
    assert report.sections[0].settings == ()
    assert report.sections[0].title.endswith(', "baseline"')
