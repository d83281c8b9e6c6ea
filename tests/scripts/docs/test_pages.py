"""The committed pages are those that the code makes."""

import re
from pathlib import Path

import pytest

from dml.results.published import read_table
from scripts.docs.commented_yaml import read_options
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


def test_a_comment_that_goes_on_in_another_column_is_refused(tmp_path):
    """Its rest would be missing on the page."""
    path = tmp_path / "a.yaml"
    path.write_text("a: 1  # one,\n      # two\nb: 2\n")
    assert [option.comment for option in read_options(path)] == ["one, two", ""]
    (tmp_path / "b.yaml").write_text("a: 1  # one,\n    # two\nb: 2\n")
    with pytest.raises(ValueError, match="in another column: a: 1"):
        read_options(tmp_path / "b.yaml")


def test_the_default_of_an_option_that_depends_on_another():
    (row,) = re.findall(
        r"^\| `optim.schedule_unit` .*", (DOCS / "reference/options.md").read_text(), re.M
    )
    assert row.split(" | ")[1] == "`epochs`"


def test_published_values_are_those_of_the_dataset_that_has_them():
    for loss, dataset in {"fastap": "SOP", "smooth_ap": "iNaturalist"}.items():
        page = (DOCS / f"losses/{loss}.md").read_text()
        (row,) = re.findall(r"^\| `params=ranking` .*", page, re.M)
        assert row.split(" | ")[1] == dataset


def test_the_number_of_published_results():
    rows = read_table("results.csv")
    with_protocol = sum(bool(row["protocol"]) for row in rows)
    readme = (DOCS.parent / "README.md").read_text()
    assert f"{with_protocol:,} published numbers name their protocols" in readme
    for path in (DOCS / "guides/read_a_report.md", DOCS.parent / "CHANGELOG.md"):
        assert f"{len(rows):,} published" in path.read_text()
