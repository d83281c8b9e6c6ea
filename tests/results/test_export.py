"""Reports as Markdown and CSV."""

from __future__ import annotations

import csv
import io
import re

import pytest

from dml.results.export import to_csv, to_markdown


def test_markdown(report):
    text = to_markdown([report])
    assert "| mf_cwms | **22.10 ± 0.12** | 22.11 ± 0.08 | -0.01 ≈ |" in text
    assert "- `B` budget of epochs, steps or search trials differs" in text
    assert "missing: python train.py loss=contrastive" in text
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1


def test_csv_has_every_number(report):
    lines = list(csv.DictReader(io.StringIO(to_csv([report]))))
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
