"""Runs of one configuration over seeds and repeats."""

from __future__ import annotations

import pytest

from dml.reporting.finished_runs import collect_runs
from dml.reporting.run_groups import group_runs
from tests.reporting.made_runs import write_run


def read_groups(root):
    return group_runs(collect_runs(root, "mft_table1").finished)


def test_seeds_and_repeats_are_one_group(mlrc, tmp_path):
    write_run(tmp_path, mlrc("seed=0", "protocol.repeats=2"), [[0.10], [0.20]])
    write_run(tmp_path, mlrc("seed=1", "protocol.repeats=1"), [[0.30]])
    write_run(tmp_path, mlrc("seed=0", "optim.lr=1e-3"), [[0.90]])
    first, second = read_groups(tmp_path)
    if first.estimate("map_at_r", "single").n == 1:
        first, second = second, first
    assert first.estimate("map_at_r", "single").values == pytest.approx((10, 20, 30))
    assert second.estimate("map_at_r", "single").values == pytest.approx((90,))


def test_the_same_repeat_counts_once(mlrc, tmp_path):
    # seed 0 with one repeat is the first repeat of seed 0 with three; the longer run counts
    write_run(tmp_path, mlrc("seed=0", "protocol.repeats=1"), [[0.11]])
    write_run(tmp_path, mlrc("seed=0", "protocol.repeats=3"), [[0.10], [0.20], [0.30]])
    (group,) = read_groups(tmp_path)
    assert group.estimate("map_at_r", "single").values == pytest.approx((10, 20, 30))


def test_extra_metrics_do_not_separate_runs(mlrc, tmp_path):
    write_run(tmp_path, mlrc("seed=0"), [[0.10]])
    write_run(tmp_path, mlrc("seed=1", "evaluation.keep_embeddings=true"), [[0.30]])
    (group,) = read_groups(tmp_path)
    assert group.estimate("map_at_r", "single").n == 2
