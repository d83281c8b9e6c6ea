"""What a report looks like: terminal, Markdown, CSV, HTML."""

from __future__ import annotations

import csv
import io
import re
from datetime import datetime
from html.parser import HTMLParser

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from dml.reporting import tables
from dml.reporting.export import as_csv, markdown
from dml.reporting.page import figures, page
from dml.reporting.report import build
from tests.reporting.made_runs import write_history, write_run

VALUES = [0.2205, 0.2215, 0.2210]
VOID = {"meta", "link", "img", "source", "br", "input"}


@pytest.fixture
def report(mlrc, cells, tmp_path):
    """MFCWMS whole, ArcFace on a smaller budget, contrastive missing, one summary cut short."""
    some = cells("mfcwms", "arcface", "contrastive")
    for cell in some:
        object.__setattr__(cell, "command", f"python train.py loss={cell.config.loss.name} <&>")
    folder = write_run(tmp_path, some[0].config, [[v] * 4 for v in VALUES], VALUES)
    write_history(folder, {(r, f): [0.1, 0.2] for r in range(3) for f in range(4)})
    small = mlrc("loss=arcface", "protocol.epochs=5")
    write_run(tmp_path, small, [[v] * 4 for v in VALUES], VALUES)
    cut = write_run(tmp_path, mlrc("loss=triplet"), [[0.1]])
    (cut / "summary.json").write_text('{"result')
    node = OmegaConf.to_container(some[0].config.experiment)
    return build("mft_table1", some, tmp_path, node)


def shown(report, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(tables.terminal(report, width))
    return console.export_text()


def test_cells_of_a_row(report):
    header, lines = tables.grid(report.sections[0], report)
    assert header == ["method", "MAP@R", "printed", "Δ", "P@1", "printed", "Δ", "n", "marks"]
    # three values 22.05, 22.15, 22.10: deviation 0.05, half-width 4.302653 × 0.05 / sqrt(3)
    assert lines[0][:4] == ["mf_cwms", "22.10 ± 0.12", "22.11 ± 0.08", "-0.01 ≈"]
    assert lines[0][-2:] == ["3", "R"]
    assert lines[1][:4] == ["arcface", "22.10 ± 0.12", "21.46 ± 0.13", "✕"]
    assert lines[1][-1] == "B R"
    assert lines[2][:4] == ["contrastive", tables.DASH, "21.02 ± 0.14", ""]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_terminal_tables_fit(report, width):
    text = shown(report, width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("22.10 ± 0.12") >= 4  # both rows, separated and concatenated
    assert "✕  not compared" in text


def test_notes_name_what_is_missing_and_left_out(report):
    lines = list(tables.notes(report))
    assert sum(line.startswith("left out: ") and "summary.json" in line for line in lines) == 1
    missing = [line for line in lines if line.startswith("missing: ")]
    assert [line.split("loss=")[1] for line in missing] == ["arcface <&>", "contrastive <&>"]
    assert "1 more; python train.py experiment=mft_table1" in list(tables.notes(report, 1))[-1]


def test_markdown(report):
    text = markdown([report])
    assert "| mf_cwms | 22.10 ± 0.12 | 22.11 ± 0.08 | -0.01 ≈ |" in text
    assert "- `B` other budget of epochs, steps or search trials" in text
    assert "missing: python train.py loss=contrastive" in text
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1


def test_csv_has_every_number(report):
    lines = list(csv.DictReader(io.StringIO(as_csv([report]))))
    assert len(lines) == 3 * 2 * 2  # rows × evaluations × metrics
    first = lines[0]
    assert first["method"] == "mf_cwms"
    assert float(first["mean"]) == pytest.approx(22.10)
    assert float(first["std"]) == pytest.approx(0.05)
    assert (first["printed"], first["table"], first["verdict"]) == (
        "22.11",
        "T3",
        "intervals overlap",
    )
    by_method = {line["method"]: line for line in lines}
    assert by_method["arcface"]["difference"] == ""
    assert "protocol.epochs=5 instead of" in by_method["arcface"]["details"]
    assert by_method["contrastive"]["command"] == "python train.py loss=contrastive <&>"


class Outline(HTMLParser):
    """Checks that tags nest, and collects what a reader of the page depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[dict] = []
        self.heads: list[dict] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img":
            self.images.append(values)
        if tag == "th":
            self.heads.append(values)
        if "id" in values:
            self.ids.append(values["id"])
        self.addresses += [values[k] for k in ("src", "srcset", "href", "data") if k in values]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def outline(text: str) -> Outline:
    found = Outline()
    found.feed(text)
    assert found.open == []
    return found


def test_page_is_whole_and_accessible(report):
    shown_figures = {report.id: figures(report)}
    text = page([report, report], shown_figures, datetime(2026, 1, 2))
    found = outline(text)
    assert found.images
    assert all(image["alt"].strip() for image in found.images)
    assert all("scope" in head for head in found.heads)
    assert all(address.startswith(("data:", "#")) for address in found.addresses)
    assert {a[1:] for a in found.addresses if a.startswith("#")} <= set(found.ids)
    assert "<&>" not in text
    assert "loss=contrastive &lt;&amp;&gt;" in text
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text


def test_page_says_where_numbers_come_from(report):
    text = page([report], {}, datetime(2026, 1, 2))
    assert "0123456789ab" in text
    assert "torch 2" in text
    assert "Welch against the printed mean: p =" in text
    assert "mft Table 3, own" in text
    assert "protocol.epochs=5 instead of 1000" in text
    assert text == page([report], {}, datetime(2026, 1, 2))


def test_page_without_any_run(cells, tmp_path):
    some = cells("mfcwms")
    found = build("x", some, tmp_path, OmegaConf.to_container(some[0].config.experiment))
    text = page([found], {found.id: figures(found)}, datetime(2026, 1, 2))
    outline(text)
    assert "Not run (1 cells)" in text
    assert "22.11 ± 0.08" in text
    assert markdown([found])
    assert shown(found, 80)
