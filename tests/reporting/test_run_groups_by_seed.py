import math

from dml.reporting.run_groups_by_seed import group_by_seed, pair_by_seed, rank_groups
from dml.reporting.run_list import read_run
from tests.reporting.listed_runs import write_listed_run


def test_groups_differ_only_in_seed_and_are_ranked(tmp_path):
    paths = [
        write_listed_run(tmp_path, score + seed / 100, lr=lr, seed=seed)
        for lr, score in ((0.1, 0.3), (0.2, 0.5))
        for seed in (1, 0)
    ]
    paths.append(write_listed_run(tmp_path, None, lr=0.3))
    runs = [read_run(path) for path in paths]
    first, second = rank_groups(runs)
    assert (first.rank, second.rank) == (1, 2)
    assert [run.seed for run in first.runs] == [0, 1]
    assert first.score is not None
    assert math.isclose(first.score.mean, 0.505)
    assert first.format_test("map_at_r") == "50.50 ± 0.71"
    assert first.format_test("unknown") == ""
    pairs = pair_by_seed(*group_by_seed(runs[1:4]))
    assert [(a.seed, b.seed) for a, b in pairs] == [(0, 0)]
