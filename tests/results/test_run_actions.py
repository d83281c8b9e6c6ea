from dml.results.run_list import plan_cleaning, remove
from dml.runs.folder.stored_run import find_runs, read_run
from tests.stored_runs import write_stored_run


def test_cleaning_keeps_what_a_run_needs(tmp_path):
    finished, stopped = write_stored_run(tmp_path), write_stored_run(tmp_path, None, seed=1)
    empty = write_stored_run(tmp_path, None, curve=(), seed=2)
    for folder in (finished, stopped):
        for name in ("best.pt", "last.pt", "previous.pt", ".best.pt.x.partial"):
            (folder / "checkpoints" / "repeat0-fold0" / name).write_bytes(b"12345")
    (finished / "search" / "trials" / "0000").mkdir(parents=True)
    plan = plan_cleaning(map(read_run, find_runs(tmp_path)))
    gone = set(remove(plan))
    job = "checkpoints/repeat0-fold0"
    assert gone == {
        empty,
        finished / job / "previous.pt",
        finished / job / ".best.pt.x.partial",
        finished / "search" / "trials",
        stopped / job / ".best.pt.x.partial",
    }
    assert not any(path.exists() for path in gone)
    assert (stopped / job / "previous.pt").exists()  # the run continues from it
    assert (finished / job / "best.pt").exists()
    assert plan_cleaning(map(read_run, find_runs(tmp_path))) == []
