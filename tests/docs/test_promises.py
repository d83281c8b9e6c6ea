"""What the pages promise of faults, stops and wrong inputs has a test, and is still promised.

A test of a promise has a mark with page and sentence: `@pytest.mark.promise(page, sentence)`. A
promise that is dropped is dropped in both places, and in the changelog.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADING = "## What happens when …\n"
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if HEADING in page.read_text()]


def normalize(text):
    return " ".join(text.split())


def find_promises():
    """Page → sentences of the marks of all tests."""
    marked = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.promise" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.promise":
                page, sentence = map(ast.literal_eval, node.args)
                marked[page].add(normalize(sentence))
    return marked


PROMISES = find_promises()


def rows_of(page):
    """The rows of the list of a page, without the period at their ends."""
    section = page.read_text(encoding="utf-8").partition(HEADING)[2].partition("\n## ")[0]
    return [normalize(row).removesuffix(".") for row in re.split(r"^- ", section, flags=re.M)[1:]]


def test_there_are_promises():
    assert sum(map(len, PROMISES.values())) >= 40
    assert len(PAGES) >= 8


@pytest.mark.parametrize("page", sorted(PROMISES))
def test_every_marked_sentence_stands_in_its_page(page):
    text = normalize((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert [sentence for sentence in sorted(PROMISES[page]) if sentence not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_row_has_a_test(page):
    name = str(page.relative_to(ROOT / "docs"))
    assert rows_of(page)
    assert [row for row in rows_of(page) if row not in PROMISES[name]] == []
