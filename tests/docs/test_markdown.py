"""Lists and tables of the pages stand as such on the site, whose Markdown wants an empty line."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ITEM = re.compile(r"- |\* |\d+\. ")
ROW = re.compile(r" *\|")


def find_lost_lines(text):
    """Lines that begin a list or a table within a paragraph, which shows them as text.

    An item of a list may follow an item, but not a further paragraph of it.
    """
    lost = []
    first = None  # line of the block, which ends at an empty line
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
            first = None
            continue
        is_text = line.strip() and not line.startswith("<!--")
        if is_code or not is_text:
            first = None
            continue
        if first is None:
            first = line
            continue
        for kind in ITEM, ROW:
            if kind.match(line) and not kind.match(first):
                lost.append(f"line {number}: {line[:60]}")
    return lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lists_and_tables_follow_an_empty_line(page):
    assert find_lost_lines(page.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("- a\n- b\n", 0),
        ("- a\n  b\n- c\n", 0),
        ("a:\n\n- b\n", 0),
        ("a:\n- b\n", 1),
        ("- a\n\n    b\n- c\n", 1),
        ("- a\n\n  | b |\n  |---|\n\n- c\n", 0),
        ("a:\n| b |\n|---|\n", 2),
        ("```\na\n- b\n```\n", 0),
        ("1. a\n2. b\n", 0),
        ("<!-- a -->\n| b |\n|---|\n", 0),
    ],
)
def test_lines_that_are_lost(text, lost):
    assert len(find_lost_lines(text)) == lost
