"""A small pilot, from its runs to its page, and the pages that docs/results ships."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import stats

from dml.results.catalog import list_cells
from scripts.studies.pilot_page import write_pilot_page
from tests.conftest import run_config

SHIPPED = Path(__file__).resolve().parents[3] / "docs" / "results"
PAGES = [path for path in sorted(SHIPPED.glob("claims_*.csv")) if "_curves" not in path.stem]
SMALL = (
    "data.reader.classes=24", "data.reader.per_class=6", "protocol.repeats=3", "protocol.epochs=1",
    "protocol.steps_per_epoch=2", "device=cpu", "data.batch_size=8",
)  # fmt: skip


def test_page_tables_and_picture(glyphs_root, tmp_path):
    places = (f"outputs={tmp_path / 'outputs'}", f"data.root={glyphs_root}")
    cells = list_cells("claims_cross_batch", [*SMALL, *places])
    for cell in cells:
        run_config(cell.config)
    write_pilot_page(cells, tmp_path / "page")
    assert sorted(path.name for path in (tmp_path / "page").iterdir()) == [
        "claims_cross_batch.csv", "claims_cross_batch.md", "claims_cross_batch.png",
        "claims_cross_batch_curves.csv",
    ]  # fmt: skip
    text = (tmp_path / "page" / "claims_cross_batch.md").read_text(encoding="utf-8")
    page = " ".join(text.split())
    assert "6 configurations, one seed each" in page
    assert "2 steps, evaluated every 2" in page
    assert not re.search(r"\{\{|None|nan", page)
    with open(tmp_path / "page" / "claims_cross_batch.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["arm"], row["repeat"]) for row in rows] == [
        (arm, repeat) for arm in ("contrastive", "contrastive+xbm") for repeat in "12"
    ]  # the first one is left out
    assert all(float(row["best_on_test"]) >= float(row["map_at_r"]) for row in rows)
    with Image.open(tmp_path / "page" / "claims_cross_batch.png") as picture:
        assert picture.size[0] > 800


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_shipped_pages_show_the_scores_of_the_csv(path):
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    scores: dict[str, list[float]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            scores.setdefault(row["arm"], []).append(float(row["map_at_r"]))
            assert row["trials"] == ("3" if "emoji" in path.stem else "6")
    for arm, own in scores.items():
        half = stats.t.ppf(0.975, len(own) - 1) * stats.sem(own)
        shown = f"{np.mean(own):.2f} ± {half:.2f}"
        assert f"| {arm} | {shown} |" in page
