"""Lists of runs: filters, tables that fit the terminal, ranks, sweeps, JSON."""

import json

import pytest

from dml.results.frame import load_runs, one_per_run
from dml.results.run_list import (
    best_table,
    format_age,
    rank_runs,
    run_table,
    select_runs,
    summarize_sweep,
    to_json,
)
from tests.stored_runs import write_stored_run


@pytest.fixture
def rows(tmp_path):
    """Two losses with two learning rates and two seeds each, and a run that was stopped."""
    for loss in ("ms", "triplet"):
        for lr in (0.001, 0.01):
            for seed in (0, 1):
                score = 0.3 + lr + seed / 10 - (loss == "triplet") / 20
                write_stored_run(tmp_path, score, loss=loss, lr=lr, seed=seed)
    write_stored_run(tmp_path, None, curve=(0.1, 0.25, 0.2), name="halfway there")
    return load_runs(tmp_path)


@pytest.fixture
def runs(rows):
    return rows.select(one_per_run(rows.table))


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("loss=ms,triplet", 9),
        ("loss=t* seed=0", 2),
        ("loss=MS state=finished", 4),
        ("lr=1e-2 loss=ms", 2),
        ("state=stopped,failed", 1),
        ("protocol.epochs=10 data=digits", 9),
        ("name=x", 0),
    ],
)
def test_runs_that_meet_all_conditions(runs, words, count):
    chosen = select_runs(runs, words.split())
    assert len(chosen.table) == len(chosen.distinct) == count


def test_a_wide_list_has_it_all_and_a_narrow_one_the_names(runs):
    lines = run_table(runs, 140)[0].plain.splitlines()
    assert lines[0] == "9 runs: digits, traditional, plain, small_cnn"
    header = "id state name loss lr seed MAP@R untrained P@1 epoch age size"
    assert lines[1].split() == header.split()
    finished = next(line for line in lines if "finished" in line and "30.10" in line)
    assert finished.split()[1:8] == ["finished", "ms", "0.001", "0", "30.10", "10.00", "50.10"]
    stopped = next(line for line in lines if "stopped" in line)
    assert "halfway there" in stopped
    assert "25.00" in stopped  # the best so far
    assert "2/10" in stopped  # the last epoch
    narrow = run_table(runs, 50)[0].plain.splitlines()
    assert max(map(len, narrow)) <= 50
    assert narrow[1].split() == ["id", "state", "loss", "seed", "MAP@R"]
    left_out = " ".join(narrow).partition("hidden (narrow terminal): ")[2]
    assert left_out.split(", ") == ["name", "lr", "untrained", "P@1", "epoch", "age", "size"]


def test_the_best_configurations_come_first(rows):
    lines = best_table(rank_runs(rows), 110)[0].plain.splitlines()
    assert lines[1].split() == ["rank", "loss", "lr", "runs", "MAP@R", "P@1", "ids"]
    assert lines[3].split()[:7] == ["1", "ms", "0.01", "2", "31.00,", "41.00", "51.00,"]
    assert "ranked by map_at_r on test images" in lines[-1]


def test_json_has_everything(runs):
    records = json.loads(to_json(runs))
    assert len(records) == 9
    first = next(one for one in records if one["loss"] == "ms" and one["state"] == "finished")
    assert first["precision_at_1"] == pytest.approx(first["map_at_r"] + 20)
    assert first["options"]["optim.lr"] in (0.001, 0.01)
    assert {one["state"]: one["map_at_r"] for one in records}["stopped"] is None


def test_problems_stand_below(tmp_path):
    folder = write_stored_run(tmp_path)
    (folder / "summary.json").write_text("{")
    _, problem = run_table(load_runs(tmp_path), 80)
    assert problem.plain.startswith(f"{folder.name[-8:]}  summary.json is damaged")


def sweep_text(folders, outputs):
    return "\n".join(one.plain for one in summarize_sweep(folders, outputs, 80))


def test_the_table_of_a_sweep(tmp_path):
    scores = {"ms": 0.3, "triplet": 0.5}
    folders = [write_stored_run(tmp_path, score, loss=loss) for loss, score in scores.items()]
    folders += [write_stored_run(tmp_path, None, loss="failed"), tmp_path / "none"]
    lines = sweep_text(folders, tmp_path).splitlines()
    assert lines[0].startswith("2 runs, best first")
    assert lines[1].split()[:6] == ["id", "state", "loss", "MAP@R", "untrained", "P@1"]
    assert lines[3].split()[1:6] == ["finished", "triplet", "50.00", "10.00", "70.00"]
    assert lines[4].split()[2] == "ms"
    (picture,) = tmp_path.glob("sweeps/loss-*/curves.png")
    assert any(line.endswith(f" {picture}") for line in lines)
    assert max(map(len, lines[:5])) <= 80
    assert lines[-1].endswith(f" {tmp_path}/*/*/*-<id>")
    assert not sweep_text(folders[:1], tmp_path)


def test_ages():
    assert [format_age(s) for s in (5, 61, 7200, 90_000)] == ["5 s", "1 min", "2 h", "1 d"]
