"""The committed pages are those that the code makes."""

from pathlib import Path

from scripts.docs.pages import find_outdated, make_pages

DOCS = Path(__file__).parents[3] / "docs"


def test_the_committed_pages_are_up_to_date():
    assert len(make_pages()) > 50
    assert find_outdated(DOCS) == [], "run python scripts/make_docs.py"
