import math

import pytest
from scipy import stats

from dml.core.errors import UserError
from dml.reporting.run_comparison import compare_runs, paired_test
from dml.reporting.run_list import list_runs, read_run
from tests.reporting.listed_runs import write_listed_run

A, B = (0.30, 0.32, 0.35), (0.33, 0.34, 0.36)


@pytest.fixture
def groups(tmp_path):
    """Two groups of three seeds."""
    return [
        [read_run(write_listed_run(tmp_path, v, lr=lr, seed=s)) for s, v in enumerate(values)]
        for lr, values in ((0.1, A), (0.2, B))
    ]


def test_the_paired_test_is_scipys(groups):
    found = paired_test(*groups)
    assert found is not None
    assert found.seeds == (0, 1, 2)
    assert math.isclose(found.mean, 2.0)
    assert math.isclose(found.p_value, stats.ttest_rel(B, A).pvalue)
    assert paired_test(groups[0][:1], groups[1]) is None


def test_two_runs_side_by_side(groups, tmp_path):
    runs = list_runs(tmp_path)
    shown = compare_runs(groups[0][0], groups[1][1], runs, tmp_path / "comparisons", 80)
    text = "\n".join(one.plain for one in shown)
    rows = [line.split() for line in text.splitlines()]
    assert ["optim.lr", "0.1", "0.2"] in rows
    assert ["MAP@R", "30.00", "34.00", "+4.00"] in rows
    assert "paired t-test of MAP@R over seeds 0, 1, 2: +2.00 points, p = 0.0742" in text
    picture = tmp_path / "comparisons" / f"{groups[0][0].id}-{groups[1][1].id}.png"
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_what_cannot_be_compared(groups, tmp_path):
    with pytest.raises(UserError, match="type two ids"):
        compare_runs(groups[0][0], groups[0][0], [], tmp_path, 80)
    folder = groups[0][0].folder
    (folder / "config.yaml").write_text("a: [")
    with pytest.raises(UserError, match="is damaged"):
        compare_runs(read_run(folder), groups[0][1], [], tmp_path, 80)
