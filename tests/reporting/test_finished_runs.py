"""What is read from run folders, and what is left out and named."""

from __future__ import annotations

import json

import pytest

from dml.reporting.finished_runs import collect, experiments_with_runs
from dml.reporting.run_groups import grouped
from tests.reporting.made_runs import write_history, write_run


def broken(folder, content: str) -> None:
    (folder / "summary.json").write_text(content)


def test_a_whole_run_is_read(mlrc, tmp_path):
    write_run(tmp_path, mlrc("protocol.repeats=2"), [[0.1, 0.3], [0.2, 0.4]], [0.5, 0.7])
    (run,) = collect(tmp_path, "mft_table1").runs
    assert run.evaluations == ("separated", "concatenated")
    assert run.values("map_at_r", "separated") == pytest.approx({0: 20.0, 1: 30.0})
    assert run.values("map_at_r", "concatenated") == pytest.approx({0: 50.0, 1: 70.0})
    assert run.values("best_epoch", "separated") == {0: 3.0, 1: 3.0}
    assert run.values("train_steps", "separated") == {0: 30.0, 1: 30.0}
    assert run.values("ms_per_batch", "separated") == {0: 200.0, 1: 200.0}
    assert run.values("recall_at_8", "separated") == {}
    assert run.values("best_epoch", "concatenated") == {}
    assert experiments_with_runs(tmp_path) == ["mft_table1"]


def test_seconds_per_epoch_need_the_length_of_an_epoch(mlrc, tmp_path):
    folder = write_run(tmp_path, mlrc(), [[0.1]])
    (run,) = collect(tmp_path, "mft_table1").runs
    assert run.values("epoch_seconds", "single") == {}
    write_history(folder, {(0, 0): [0.1, 0.2, 0.3]})
    (run,) = collect(tmp_path, "mft_table1").runs
    assert run.values("epoch_seconds", "single") == {0: 2.0}  # 8 s / 40 steps × 10 steps


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"result_id": "mf_cw', "cannot be read"),
        ("", "cannot be read"),
        ("[1, 2]", "no summary"),
        ('{"result_id": "mf_cwms"}', "lacks data, stand_in"),
        ({"jobs": []}, "jobs is empty"),
        ({"jobs": [{"repeat": 0, "metrics": {"map_at_r": float("nan")}}]}, "map_at_r is nan"),
        ({"jobs": [{"fold": 0}]}, "not of this version"),
        ({"jobs": 3}, "not of this version"),
        ({"embedding_size": None}, "not of this version"),
    ],
)
def test_a_summary_that_is_none_is_named_and_left_out(mlrc, tmp_path, content, reason):
    write_run(tmp_path, mlrc("seed=1"), [[0.1]])
    folder = write_run(tmp_path, mlrc("seed=2"), [[0.2]])
    if isinstance(content, dict):
        content = json.dumps(json.loads((folder / "summary.json").read_text()) | content)
    broken(folder, content)
    found = collect(tmp_path, "mft_table1")
    assert [run.summary["seed"] for run in found.runs] == [1]
    (problem,) = found.problems
    assert problem.path == folder
    assert reason in problem.reason
    assert "\n" not in problem.reason


def test_absent_configs_and_unfinished_runs(mlrc, tmp_path):
    lost = write_run(tmp_path, mlrc("seed=1"), [[0.1]])
    (lost / "config.yaml").unlink()
    open_run = write_run(tmp_path, mlrc("seed=2"), [[0.2]])
    (open_run / "summary.json").unlink()
    bad = write_run(tmp_path, mlrc("seed=3"), [[0.2]])
    (bad / "config.yaml").write_text("a: [")
    found = collect(tmp_path, "mft_table1")
    assert found.runs == ()
    assert {p.path for p in found.problems} == {lost, bad}
    assert found.unfinished == (open_run,)


def test_nothing_there(tmp_path):
    assert collect(tmp_path, "mft_table1").runs == ()
    assert experiments_with_runs(tmp_path / "nowhere") == []


def test_seeds_and_repeats_are_one_group(mlrc, tmp_path):
    write_run(tmp_path, mlrc("seed=0", "protocol.repeats=2"), [[0.10], [0.20]])
    write_run(tmp_path, mlrc("seed=1", "protocol.repeats=1"), [[0.30]])
    write_run(tmp_path, mlrc("seed=0", "optim.lr=1e-3"), [[0.90]])
    first, second = grouped(collect(tmp_path, "mft_table1").runs)
    if first.estimate("map_at_r", "single").n == 1:
        first, second = second, first
    assert first.estimate("map_at_r", "single").values == pytest.approx((10, 20, 30))
    assert second.estimate("map_at_r", "single").values == pytest.approx((90,))


def test_the_same_repeat_counts_once(mlrc, tmp_path):
    # seed 0 with one repeat is the first repeat of seed 0 with three; the longer run counts
    write_run(tmp_path, mlrc("seed=0", "protocol.repeats=1"), [[0.11]])
    write_run(tmp_path, mlrc("seed=0", "protocol.repeats=3"), [[0.10], [0.20], [0.30]])
    (group,) = grouped(collect(tmp_path, "mft_table1").runs)
    assert group.estimate("map_at_r", "single").values == pytest.approx((10, 20, 30))


def test_measures_beside_scores_do_not_part_runs(mlrc, tmp_path):
    write_run(tmp_path, mlrc("seed=0"), [[0.10]])
    write_run(tmp_path, mlrc("seed=1", "evaluation.keep_embeddings=true"), [[0.30]])
    (group,) = grouped(collect(tmp_path, "mft_table1").runs)
    assert group.estimate("map_at_r", "single").n == 2
