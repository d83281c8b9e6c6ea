"""Figures that docs/concepts states are those that the code computes."""

import re
from pathlib import Path

import pytest

from studies.concepts.pictures import PICTURES as DRAWN

CONCEPTS = Path(__file__).resolve().parents[2] / "docs" / "concepts"
PAGES = sorted(CONCEPTS.glob("*.md"))
PICTURES = sorted(CONCEPTS.glob("*.png"))


def test_the_worked_example_is_what_the_metrics_compute(capsys):
    page = (CONCEPTS / "metrics.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(block, "metrics.md", "exec"), names)
    scores = names["scores"]
    assert scores["precision_at_1"] == 0
    assert scores["recall_at_2"] == 1
    assert scores["r_precision"] == pytest.approx(2 / 3)
    assert scores["map_at_r"] == pytest.approx(7 / 18)
    assert names["average_precision"] == pytest.approx(53 / 90)
    stated = {float(number) for number in re.findall(r"\$: (\d+\.\d) %", page)}
    computed = (scores["r_precision"], scores["map_at_r"], names["average_precision"])
    assert stated == {round(100 * value, 1) for value in computed}


def test_every_concept_has_one_picture():
    assert [page.stem for page in PAGES] == [picture.stem for picture in PICTURES]
    assert set(DRAWN) == {page.stem for page in PAGES}
    for page in PAGES:
        pictures = re.findall(r"!\[.+?\]\((.*?)\)", page.read_text(encoding="utf-8"))
        assert pictures == [f"{page.stem}.png"]
