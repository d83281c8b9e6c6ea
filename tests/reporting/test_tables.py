"""Tables of a report, as text and in terminals of several widths."""

from __future__ import annotations

import csv
import io
from datetime import datetime

import pytest
from rich.console import Console

from dml.reporting import tables
from dml.reporting.export import to_csv
from dml.reporting.page import render_page


def render(report, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(tables.terminal_tables(report, width))
    return console.export_text()


def test_cells_of_a_row(report):
    header, lines = tables.build_grid(report.sections[0], report)
    assert header == ["method", "MAP@R", "published", "Δ", "P@1", "published", "Δ", "n", "marks"]
    # three values 22.05, 22.15, 22.10: deviation 0.05, half-width 4.302653 × 0.05 / sqrt(3)
    assert lines[0][:4] == ["mf_cwms", "22.10 ± 0.12", "22.11 ± 0.08", "-0.01 ≈"]
    assert lines[0][-2:] == ["3", "R"]
    assert lines[1][:4] == ["arcface", "22.10 ± 0.12", "21.46 ± 0.13", "✕"]
    assert lines[1][-1] == "B R"
    assert lines[2][:4] == ["contrastive", tables.DASH, "21.02 ± 0.14", ""]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_terminal_tables_fit(report, width):
    text = render(report, width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("22.10 ± 0.12") >= 4  # both rows, separated and concatenated
    assert "✕  not compared" in text


def test_notes_on_missing_cells_and_unreadable_runs(report):
    lines = list(tables.list_notes(report))
    assert sum(line.startswith("left out: ") and "summary.json" in line for line in lines) == 1
    missing = [line for line in lines if line.startswith("missing: ")]
    assert [line.split("loss=")[1] for line in missing] == ["arcface <&>", "contrastive <&>"]
    assert "1 more; python train.py experiment=mft_table1" in list(tables.list_notes(report, 1))[-1]


def test_a_column_is_added_in_one_place(report, monkeypatch):
    monkeypatch.setitem(
        tables.ROW_COLUMNS, "runs", lambda row: str(len(row.group.runs or ())) if row.group else ""
    )
    header, lines = tables.build_grid(report.sections[0], report)
    assert (header[-1], [line[-1] for line in lines]) == ("runs", ["1", "1", ""])
    assert [line["runs"] for line in csv.DictReader(io.StringIO(to_csv([report])))][:2] == [
        "1",
        "1",
    ]
    page = render_page([report], {}, datetime(2026, 1, 2))
    assert page.count('<th scope="col" rowspan="2">runs</th>') == len(report.sections)
