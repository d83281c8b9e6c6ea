"""The table of runs: a row per evaluation and repeat."""

import pandas as pd
import pytest

from dml.results.frame import (
    estimate,
    join_runs,
    load_frame,
    load_runs,
    make_frame,
    make_runs,
    one_per_run,
)
from dml.runs.folder.stored_run import find_runs, read_run
from tests.results.made_runs import write_run
from tests.stored_runs import write_stored_run


def test_values_of_a_run(mlrc, tmp_path):
    folder = write_run(tmp_path, mlrc("protocol.repeats=2"), [[0.1, 0.3], [0.2, 0.4]], [0.5, 0.7])
    frame = make_frame([read_run(folder)])
    separated = frame[frame.evaluation == "separated"].set_index("repeat")
    joined = frame[frame.evaluation == "concatenated"].set_index("repeat")
    expected = {
        "map_at_r": [20.0, 30.0], "best_epoch": [3.0, 3.0], "train_steps": [30.0, 30.0],
        "ms_per_batch": [200.0, 200.0], "epoch_seconds": [2.0, 2.0],
    }  # fmt: skip
    for name, values in expected.items():
        assert list(separated[name]) == pytest.approx(values)
    assert list(joined.map_at_r) == pytest.approx([50.0, 70.0])
    assert joined.best_epoch.isna().all()
    assert list(one_per_run(frame).map_at_r) == pytest.approx([25.0])
    assert estimate(separated.reset_index(), "recall_at_8") is None


def test_of_two_runs_with_one_seed_the_longer_one_counts(mlrc, tmp_path):
    for repeats, value in ((1, 0.9), (3, 0.2)):
        write_run(tmp_path, mlrc(f"protocol.repeats={repeats}"), [[value]] * repeats)
    write_run(tmp_path, mlrc("seed=1"), [[0.4]])
    frame = make_frame(map(read_run, find_runs(tmp_path)))
    assert frame.configuration.nunique() == 1
    assert estimate(frame, "map_at_r").values == pytest.approx((20, 20, 20, 40))


def test_runs_in_any_state_are_rows(tmp_path):
    write_stored_run(tmp_path, 0.5, name="done")
    write_stored_run(tmp_path, None, curve=(0.1, 0.3, 0.2), seed=1)
    damaged = write_stored_run(tmp_path, seed=2)
    (damaged / "summary.json").write_text("[")
    runs = load_frame(tmp_path).set_index("state")
    assert (runs.loc["finished", "score"], runs.loc["finished", "name"]) == (50.0, "done")
    assert (runs.loc["stopped", "score"], runs.loc["stopped", "epoch"]) == (30.0, 2.0)
    assert runs.loc["damaged", "problem"].startswith("summary.json is damaged: ")
    assert make_frame(()).empty


def test_the_score_so_far_is_the_mean_over_repeats_and_folds(tmp_path):
    folder = write_stored_run(tmp_path, None)
    rows = ["0,0,0,0,0.2", "0,0,1,10,0.5", "0,1,1,10,0.4", "1,0,1,10,0.3", "1,0,2,20,0.1"]
    text = "\n".join(["repeat,fold,epoch,step,map_at_r", *rows, ""])
    (folder / "history.csv").write_text(text)
    (run,) = load_frame(tmp_path).itertuples()
    assert run.score == pytest.approx(100 * (0.5 + 0.4 + 0.3) / 3)


def test_a_table_has_plain_values_and_knows_its_runs(mlrc, tmp_path):
    write_run(tmp_path, mlrc(), [[0.1, 0.3], [0.2, 0.4]], [0.5, 0.7])
    write_stored_run(tmp_path, None, curve=(0.1, 0.3), seed=1)
    (write_stored_run(tmp_path, seed=2) / "summary.json").write_text("[")
    runs = load_runs(tmp_path)
    for value in runs.table.to_numpy().ravel():
        assert value is None or value is pd.NA or isinstance(value, str | bool | int | float)
    for folder, run in zip(runs.table.folder, runs.by_row, strict=True):
        assert str(run.folder) == folder
    assert len(runs.distinct) == 3
    assert len(runs.table) == 2 * 2 + 2  # evaluations × repeats, and those without a result
    last_first = runs.select(runs.table.iloc[::-1])
    assert last_first.distinct == runs.distinct[::-1]
    assert last_first.options == runs.options[::-1]
    parts = [runs.select(runs.table[runs.table.state == state]) for state in ("stopped", "damaged")]
    joined = join_runs([make_runs(()), *parts])
    assert [run.state for run in joined.by_row] == ["stopped", "damaged"]
