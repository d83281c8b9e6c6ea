"""What pages say about the experiments that ran is what was run."""

import re
from pathlib import Path

import pytest

from dml.results.catalog import experiment_ids

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
COUNT = re.compile(
    r"(\d+) [a-z]+\b[^.;|]* run once in \w+ smallest form[^;]*; (\d+) [a-z ]*reproduced on real"
)


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/experiments.md", "docs/results/README.md", "docs/results/rehearsal.md"],
)
def test_pages_count_the_experiments_that_ran_and_those_with_results(page):
    ids = experiment_ids()
    rehearsal = (RESULTS / "rehearsal.md").read_text(encoding="utf-8")
    assert set(
        re.findall(r"^\| (\w+) \| \d+ of .* \| ran to its report \|$", rehearsal, re.M)
    ) == set(ids)
    (found,) = COUNT.findall(" ".join((ROOT / page).read_text("utf-8").split()))
    assert found == (str(len(ids)), str(len([*RESULTS.glob("*_runs.csv")])))
