"""Every loss has a page."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = sorted({path.stem for path in (ROOT / "configs/loss").glob("*.yaml")} - {"custom"})


def test_the_table_lists_them_all():
    index = (ROOT / "docs/losses/index.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[`(\w+)`\]", index, re.M)) == NAMES
