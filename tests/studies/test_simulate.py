"""studies/simulate.py: with the noise of which searches it simulates."""

import re

import pytest

from studies import simulate
from studies.comparison.declaration import read_declaration
from studies.comparison.results import Results
from tests.studies.test_comparison import made, with_runs

NETWORKS = read_declaration(simulate.STUDIES / "networks_emoji" / "declaration.yaml")


@pytest.fixture
def simulated(tmp_path, monkeypatch, capsys):
    """Returns the lines for networks_emoji, beside tables of heads_emoji."""
    monkeypatch.setattr(simulate, "PAGES", tmp_path)
    with_runs(made({"ms": 20, "c1": 18}, spread=0.3)).write(tmp_path / "heads_emoji")

    def run():
        assert simulate.main(["networks_emoji", "--comparisons", "20"]) == 0
        return capsys.readouterr().out.splitlines()

    return run


def noise_of(lines):
    return float(re.match(r"  ([\d.]+) points: standard deviation of a search", lines[1])[1])


def test_the_noise_is_that_of_the_study_once_every_arm_has_two_searches(simulated, tmp_path):
    of_heads = "with the noise of the searches in docs/results/heads_emoji:"
    lines = simulated()
    assert lines[0] == of_heads
    assert 0.1 < noise_of(lines) < 0.6
    means = {arm: 20 + place for place, arm in enumerate(NETWORKS.arms)}
    tables = with_runs(made(means, searches=2, spread=3.0))
    rest = []
    for table in tables:
        is_lost = (table.arm == "c1") & (table.search == 1)
        rest.append(table[~is_lost])
    Results(*rest).write(tmp_path / "networks_emoji")
    assert simulated()[0] == of_heads
    tables.write(tmp_path / "networks_emoji")
    lines = simulated()
    assert lines[0] == "with the noise of the searches in docs/results/networks_emoji:"
    assert noise_of(lines) > 1


def test_two_searches_are_also_simulated_with_arms_that_vary_differently(simulated):
    headings = [line for line in simulated() if not line.startswith(" ")]
    assert headings[1:] == [
        "with this noise, and arms that vary as differently as in docs/results/heads_emoji:"
    ]
