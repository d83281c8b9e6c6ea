"""Runs read from their folders, and the reasons for those left out."""

from __future__ import annotations

import json

import pytest

from dml.results.finished_runs import collect_runs, experiments_with_runs
from tests.results.made_runs import write_run


def test_values_of_a_run(mlrc, tmp_path):
    write_run(tmp_path, mlrc("protocol.repeats=2"), [[0.1, 0.3], [0.2, 0.4]], [0.5, 0.7])
    (run,) = collect_runs(tmp_path, "mft_table1").finished
    assert run.evaluations == ("separated", "concatenated")
    assert run.values("map_at_r", "separated") == pytest.approx({0: 20.0, 1: 30.0})
    assert run.values("map_at_r", "concatenated") == pytest.approx({0: 50.0, 1: 70.0})
    assert run.values("best_epoch", "separated") == {0: 3.0, 1: 3.0}
    assert run.values("train_steps", "separated") == {0: 30.0, 1: 30.0}
    assert run.values("ms_per_batch", "separated") == {0: 200.0, 1: 200.0}
    assert run.values("recall_at_8", "separated") == {}
    assert run.values("best_epoch", "concatenated") == {}
    assert experiments_with_runs(tmp_path) == ["mft_table1"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"result_id": "mf_cw', "cannot be read"),
        ("", "cannot be read"),
        ("[1, 2]", "not the summary of a run"),
        ('{"result_id": "mf_cwms"}', "lacks data, stand_in"),
        ({"jobs": []}, "jobs is empty"),
        ({"jobs": [{"repeat": 0, "metrics": {"map_at_r": float("nan")}}]}, "map_at_r is nan"),
        ({"jobs": [{"fold": 0}]}, "not of this version"),
        ({"jobs": 3}, "not of this version"),
        ({"embedding_size": None}, "not of this version"),
    ],
)
def test_a_summary_that_cannot_be_read_is_left_out(mlrc, tmp_path, content, reason):
    write_run(tmp_path, mlrc("seed=1"), [[0.1]])
    folder = write_run(tmp_path, mlrc("seed=2"), [[0.2]])
    if isinstance(content, dict):
        content = json.dumps(json.loads((folder / "summary.json").read_text()) | content)
    (folder / "summary.json").write_text(content)
    found = collect_runs(tmp_path, "mft_table1")
    assert [run.summary["seed"] for run in found.finished] == [1]
    (problem,) = found.unreadable
    assert problem.path == folder
    assert reason in problem.reason
    assert "\n" not in problem.reason


def test_no_folders(tmp_path):
    assert collect_runs(tmp_path, "mft_table1").finished == ()
    assert experiments_with_runs(tmp_path / "nowhere") == []
