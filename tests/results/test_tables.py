"""Tables of a report, as text and in terminals of several widths."""

from __future__ import annotations

import csv
import io
from datetime import datetime

import pytest
from rich.console import Console

from dml.results import tables
from dml.results.catalog import load_experiment
from dml.results.export import to_csv, to_markdown
from dml.results.page import render_page
from dml.results.report import build_report
from dml.results.terminal import terminal_tables
from tests.results.made_runs import write_run


def render(report, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(terminal_tables(report, width))
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


def own_report(composed, root, *runs: tuple[str, float]):
    for overrides, value in runs:
        write_run(root, composed(*overrides.split()), [[value]])
    return build_report(load_experiment("single"), (), root)


def test_intervals_begin_at_three_runs(composed, tmp_path):
    runs = [(f"seed={seed}", 0.2 + seed / 100) for seed in range(3)]
    runs += [(f"seed={seed} loss=ms", 0.2 + seed / 100) for seed in range(2)]
    runs += [("loss=mfcont", 0.25)]
    report = own_report(composed, tmp_path, *runs)
    (section,) = report.sections
    header, lines = tables.build_grid(section, report)
    texts = {line[0]: line[header.index("MAP@R")] for line in lines}
    # half-width 4.302653 × 1 / sqrt(3); both values of two
    assert texts == {"mfcwms": "21.00 ± 2.48", "ms": "20.00, 21.00", "mfcont": "25.00"}
    assert "of two repeats both values" in tables.caption(section, report)
    assert "| 20.00, 21.00 |" in to_markdown([report])
    assert "20.00, 21.00" in render_page([report], {}, datetime(2026, 1, 2))
    assert "20.00, 21.00" in render(report, 200)
    lines = csv.DictReader(io.StringIO(to_csv([report])))
    found = [line for line in lines if line["metric"] == "map_at_r" and line["repeats"] == "2"]
    assert [(float(line["mean"]), line["ci95"]) for line in found] == [(20.5, "")]


def test_the_footer_says_that_epochs_were_selected_on_test(composed, tmp_path):
    report = own_report(composed, tmp_path, ("loss=ms", 0.2))
    text = "best epoch selected on the test images, as in the literature"
    assert text in tables.caption(report.sections[0], report)
    other = own_report(composed, tmp_path / "other", ("protocol=holdout data=glyphs", 0.2))
    assert text not in tables.caption(other.sections[0], other)


def test_unfinished_runs_are_one_line_at_the_end(composed, tmp_path):
    for seed in range(3):
        folder = write_run(tmp_path, composed(f"seed={seed}"), [[0.2]])
        if seed:
            (folder / "summary.json").unlink()
    report = build_report(load_experiment("single"), (), tmp_path)
    assert list(tables.list_notes(report)) == [
        "not finished: 2 runs; python scripts/runs.py lists them"
    ]
