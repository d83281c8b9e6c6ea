import os
import time

import pytest

from dml.core.errors import UserError
from dml.core.locks import try_lock
from dml.reporting.run_list import State, find_run, list_runs, read_run
from tests.reporting.listed_runs import write_listed_run


def test_a_finished_run(tmp_path):
    run = read_run(write_listed_run(tmp_path, 0.44, loss="triplet", seed=3, name="mine"))
    assert run.state == State.FINISHED
    assert run.id == run.folder.name[-8:]
    assert (run.score, run.scores["recall_at_1"], run.epoch, run.epochs) == (0.44, 0.64, 1, 10)
    assert (run.labels["loss"], run.labels["name"], run.seed) == ("triplet", "mine", 3)
    assert run.options["optim.lr"] == 0.001
    assert "data.root" not in run.options  # does not decide the result
    assert run.size == sum(f.stat().st_size for f in run.folder.rglob("*") if f.is_file())


def test_an_unfinished_run_shows_its_progress(tmp_path):
    folder = write_listed_run(tmp_path, None, curve=(0.1, 0.3, 0.2))
    with open(folder / "history.csv", "a") as file:
        file.write("0,0,3.0,30,0.")  # cut by a crash
    run = read_run(folder)
    assert (run.state, run.score, run.epoch) == (State.STOPPED, 0.3, 2)


@pytest.mark.parametrize(
    ("lock", "shared", "state"),
    [("run.lock", False, State.RUNNING), ("search.lock", True, State.SEARCHING)],
)
def test_a_run_at_work_holds_its_lock(tmp_path, lock, shared, state):
    folder = write_listed_run(tmp_path, None)
    with try_lock(folder / lock, shared):
        assert read_run(folder).state == state
    (folder / lock).write_text("process 1 on a machine that was switched off\n")
    assert read_run(folder).state == State.STOPPED


def test_a_failed_run_says_why(tmp_path):
    folder = write_listed_run(tmp_path, None)
    log = folder / "train.log"
    log.write_text("2026 [7] command: train.py\n2026 [7] error: data.root: no such folder\n")
    run = read_run(folder)
    assert (run.state, run.problem) == (State.FAILED, "data.root: no such folder")
    log.write_text(log.read_text() + "2026 [8] command: train.py\n")
    assert read_run(folder).state == State.STOPPED


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("summary.json", b"{", "summary.json is damaged"),
        ("summary.json", b"{}", "not the summary of a run"),
        ("summary.json", b'{"metrics": {}}', "summary.json is not of a run"),
        ("config.yaml", b"a: [", "config.yaml is damaged"),
        ("config.yaml", b"\xff\x00", "config.yaml is damaged"),
        ("config.yaml", b"a: {b: ['${oc.env:HOME}']}", "config.yaml is damaged: a.b holds ${"),
        ("config.yaml", b"a: 1", "config.yaml is not of a run"),
        ("config.yaml", b"- 1", "config.yaml is damaged"),
    ],
)
def test_damaged_files_are_named(tmp_path, file, content, problem):
    folder = write_listed_run(tmp_path)
    (folder / file).write_bytes(content)
    run = read_run(folder)
    assert run.state == State.DAMAGED
    assert problem in run.problem


def test_set_ups_without_results(tmp_path):
    assert read_run(write_listed_run(tmp_path, None, curve=())).state == State.EMPTY
    folder = tmp_path / "single" / "some" / "seed0-12345678"
    folder.mkdir(parents=True)
    (folder / "run.lock").write_text("")
    assert read_run(folder).state == State.EMPTY
    finished = write_listed_run(tmp_path, seed=9)
    (finished / "config.yaml").unlink()
    assert read_run(finished).problem == "config.yaml is missing"


def test_newest_first_and_nothing_but_runs(tmp_path):
    for seed in range(3):
        folder = write_listed_run(tmp_path, seed=seed)
        for file in folder.glob("*.*"):
            os.utime(file, (1e9 + seed, 1e9 + seed))
    (tmp_path / "reports" / "a" / "b").mkdir(parents=True)
    assert [run.seed for run in list_runs(tmp_path)] == [2, 1, 0]
    assert len(list_runs(folder.parent)) == 3
    assert len(list_runs(folder)) == 1
    with pytest.raises(UserError, match="there is no folder"):
        list_runs(tmp_path / "none")


def test_a_run_is_found_by_id_name_and_folder(tmp_path):
    first = write_listed_run(tmp_path, name="long one")
    write_listed_run(tmp_path, seed=1, name="twice")
    write_listed_run(tmp_path, seed=2, name="twice")
    runs = list_runs(tmp_path)
    for word in (first.name[-8:], first.name[-8:-4], "long one", str(first)):
        assert find_run(word, runs).folder == first
    with pytest.raises(UserError, match="means several runs"):
        find_run("twice", runs)
    with pytest.raises(UserError, match="neither the id, name or folder"):
        find_run("zzz", runs)


def test_many_runs_are_listed_without_a_pause(tmp_path):
    for seed in range(100):
        write_listed_run(tmp_path, seed=seed)
    began, total = time.process_time(), 0
    for number in range(5_000_000):
        total += number
    pace = time.process_time() - began
    began = time.process_time()
    assert len(list_runs(tmp_path)) == 100
    assert time.process_time() - began < 2 * pace  # half a second where nothing else runs
