import pytest

from dml.core.locks import try_lock
from dml.results.run_list import State, read_run
from tests.results.listed_runs import write_listed_run


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
