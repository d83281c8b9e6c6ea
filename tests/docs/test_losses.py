"""Every loss has a page with what somebody needs to choose and run it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = sorted({path.stem for path in (ROOT / "configs/loss").glob("*.yaml")} - {"custom"})


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_complete(name):
    page = (ROOT / f"docs/losses/{name}.md").read_text(encoding="utf-8")
    assert f"python train.py loss={name}" in page
    for label in ("Note", "Source", "Class", "Batches", "Parameters", "Cost"):
        assert f"- **{label}:** " in page, label
    for equation in re.findall(r"```math\n(.*?)```", page, re.S):
        assert equation.count("{") == equation.count("}")
    assert "```math" in page


def test_the_table_lists_them_all():
    index = (ROOT / "docs/losses/index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[`(\w+)`\]", index, re.M)) == NAMES
