"""The committed pages are those that the code makes."""

import shutil
from pathlib import Path

from scripts.docs.pages import find_outdated, make_pages, write_pages

DOCS = Path(__file__).parents[3] / "docs"


def test_the_committed_pages_are_up_to_date():
    assert find_outdated(DOCS) == [], "run python scripts/make_docs.py"


def test_pages_that_are_missing_changed_or_superfluous_are_written_anew(tmp_path):
    docs = tmp_path / "docs"
    shutil.copytree(DOCS, docs)
    (docs / "losses/ms.md").unlink()
    changed = docs / "methods/metrix.md"
    changed.write_text(changed.read_text() + "by hand\n")
    shutil.copy(docs / "losses/c1.md", docs / "losses/no_longer.md")
    (docs / "own.md").write_text("# A page that nobody generates\n")
    outdated = ["losses/ms.md", "losses/no_longer.md", "methods/metrix.md"]
    assert find_outdated(docs) == outdated
    assert write_pages(docs) == outdated
    assert find_outdated(docs) == []
    assert not (docs / "losses/no_longer.md").exists()
    assert (docs / "own.md").exists()
    assert len(make_pages()) > 50
