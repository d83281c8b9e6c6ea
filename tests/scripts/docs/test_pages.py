"""The committed pages are those that the code makes."""

import re
from pathlib import Path

from scripts.docs.pages import find_outdated, make_pages

DOCS = Path(__file__).parents[3] / "docs"


def test_the_committed_pages_are_up_to_date():
    assert len(make_pages()) > 50
    assert find_outdated(DOCS) == [], "run python scripts/make_docs.py"


def test_the_leaderboard_has_the_scores_of_the_studies():
    """Those of the length that a study's page has chosen for each arm."""
    board = (DOCS / "results/leaderboard.md").read_text()
    for study in (path.parent.name for path in DOCS.glob("results/*/ranking.csv")):
        page = (DOCS / f"results/{study}.md").read_text()
        rows = re.findall(r"^\| `(\w+)` \| (\d+\.\d\d\s±\s\d+\.\d\d) \|", page, re.M)
        assert len(rows) > 2
        for arm, score in rows:
            assert re.search(rf"\| {arm} \| {score} \| .*\[{study}\]", board), (study, arm)
