"""The notebook runs from top to bottom, on fewer glyphs and with one epoch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOUR = ROOT / "docs" / "notebooks" / "tour.ipynb"
SMALL = '"protocol.epochs=1", "data.reader.classes=20", "data.reader.per_class=10"'


@pytest.mark.soak
def test_the_tour(tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(TOUR, as_version=4)
    for cell in notebook.cells:
        cell.source = cell.source.replace('"protocol.epochs=3"', SMALL)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    shown = [part for cell in notebook.cells for part in cell.get("outputs", [])]
    printed = "".join(part.get("text", "") for part in shown)
    pictures = [part for part in shown if "image/png" in part.get("data", {})]
    assert len(pictures) == 3  # neighbors twice, curves: dml.train leaves the backend alone
    assert "untrained" in printed
    assert "CenterLoss" in printed
    assert len(list((tmp_path / "outputs" / "single").iterdir())) == 2
