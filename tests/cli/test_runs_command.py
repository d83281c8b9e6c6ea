import json

import pytest

from dml.cli.runs_command import Removal, _remove, plan_removal
from dml.core.locks import Busy, try_lock
from dml.runs.folder.run_folder import RunFolder
from dml.runs.folder.stored_run import find_runs, read_run
from tests.commands import runs
from tests.stored_runs import write_stored_run


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    """Three runs below outputs/ of the current folder."""
    monkeypatch.chdir(tmp_path)
    for seed, score in enumerate((0.4, 0.5, None)):
        write_stored_run(tmp_path / "outputs", score, seed=seed, name=f"run{seed}")
    return tmp_path / "outputs"


def test_lists(outputs, capsys):
    assert runs([]) == 0
    assert "3 runs" in capsys.readouterr().out
    assert runs(["state=finished", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    assert runs(["best", "--runs", "outputs", "loss=ms"]) == 0
    assert "40.00, 50.00" in capsys.readouterr().out
    assert runs(["--runs", str(outputs), "seed=7", "state=finished"]) == 0
    assert "none of 3 runs" in capsys.readouterr().out


def test_runs_are_compared_by_name(outputs, capsys):
    assert runs(["compare", "run0", "run1"]) == 0
    out = capsys.readouterr().out
    assert "+10.00" in out
    assert "curves      outputs/comparisons/" in out


@pytest.mark.promise("runs.md", "`rm` or `clean` is called: it asks first")
def test_removal_asks(outputs, capsys, monkeypatch):
    assert runs(["rm", "run2"]) == 1
    assert "--yes removes it without asking" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: "n")
    assert runs(["rm", "run2"]) == 0
    assert "nothing was removed" in capsys.readouterr().out
    monkeypatch.setattr("builtins.input", lambda question: "y")
    assert runs(["rm", "run2"]) == 0
    assert runs(["run=x", "--json"]) == 2
    assert runs(["--json"]) == 0
    assert "run2" not in capsys.readouterr().out.partition("[")[2]
    assert runs(["clean", "--yes"]) == 0
    assert capsys.readouterr().out == "nothing to remove\n"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["bst"], 2, "did you mean 'best'?"),
        (["rm"], 2, "rm: takes runs"),
        (["outputs"], 2, "outputs: neither a condition"),
        (["compare", "run0", "none"], 1, "'none' is neither the id, name or folder of a run"),
        (["los=ms"], 2, "did you mean 'loss'?"),
        (["state=finishd"], 2, "state: 'finishd' does not exist; did you mean 'finished'?"),
        (["best", "state=x,finished"], 2, "state: 'x' does not exist; one of finished, running"),
        (["--runs", "missing"], 1, "there is no folder missing"),
        (["--runs", __file__], 2, "is not a folder"),
        (["--runs", "x" * 300], 2, "File name too long"),
        (["rm", ""], 1, "'' is neither the id"),
        (["compare", "run0", "run1", "--json"], 2, "leave out --json"),
    ],
)
def test_mistakes_are_one_line(outputs, capsys, words, status, message):
    assert runs(words) == status
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.promise(
    "runs.md",
    "`clean` removes files: what a run needs to continue, or to be loaded, stays",
)
def test_cleaning_keeps_what_a_run_needs(tmp_path):
    finished, stopped = write_stored_run(tmp_path), write_stored_run(tmp_path, None, seed=1)
    empty = write_stored_run(tmp_path, None, curve=(), seed=2)
    for folder in (finished, stopped):
        for name in ("best.pt", "last.pt", ".best.pt.0123abcd.partial"):
            (folder / "checkpoints" / "repeat0-fold0" / name).write_bytes(b"12345")
    searched = write_stored_run(tmp_path, None, curve=(), seed=3)
    for folder in (finished, searched):
        (folder / "search" / "trials" / "0000").mkdir(parents=True)
    plan = plan_removal(map(read_run, find_runs(tmp_path)), whole=False)
    gone = {removal.path for removal in plan}
    assert runs(["--runs", str(tmp_path), "clean", "--yes"]) == 0
    job = "checkpoints/repeat0-fold0"
    assert gone == {
        empty,
        finished / job / ".best.pt.0123abcd.partial",
        finished / "search" / "trials",
        stopped / job / ".best.pt.0123abcd.partial",
    }
    assert not any(path.exists() for path in gone)
    assert (stopped / job / "last.pt").exists()  # the run continues from it
    assert (finished / job / "best.pt").exists()
    assert not plan_removal(map(read_run, find_runs(tmp_path)), whole=False)


LOCKS = (
    *("run.lock", "checkpoints/repeat0-fold0/run.lock", "search/claim.lock"),
    *("search/journal.lock", "search/trials/0000/run.lock"),
    "search/trials/0000/checkpoints/repeat0-fold1/run.lock",
)


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("score", [0.5, None])
def test_a_folder_in_use_stays(tmp_path, capsys, lock, score):
    folder = write_stored_run(tmp_path, score)
    (folder / "checkpoints/repeat0-fold0/.best.pt.0123abcd.partial").write_bytes(b"1")
    (folder / "run.lock").touch()
    with try_lock(folder / lock):
        (folder / "search" / "trials").mkdir(parents=True, exist_ok=True)
        before = sorted(folder.rglob("*"))
        if score is None:
            alone = "searching" if lock.startswith("search") else "running"
            assert read_run(folder).state == alone
        assert runs(["--runs", str(tmp_path), "rm", str(folder), "--yes"]) == 1
        assert "stop it first" in capsys.readouterr().err
        assert runs(["--runs", str(tmp_path), "clean", "--yes"]) == 0
        with pytest.raises(Busy):
            RunFolder(folder).clear()
        # begun after the list was made
        removal = Removal(folder, folder, "", 0)
        with pytest.raises(Busy):
            _remove([removal], sure=True)
        assert sorted(folder.rglob("*")) == before
    assert runs(["--runs", str(tmp_path), "rm", str(folder), "--yes"]) == 0
    assert not folder.exists()


KEPT = (
    *("checkpoints/repeat0-fold0/best.pt", "checkpoints/repeat0-fold0/last.pt"),
    *("checkpoints/repeat0-fold0/result.json", "search/trials/0000/history.csv", "best.yaml"),
    *("search/journal.log", "notes.txt", "figures/mine.png", "network/model.safetensors"),
    *(".photos.npz.partial/data", ".notes.partial"),
)


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("history", [None, "", "repeat,fold,epoch,step\n"])
def test_cleaning_keeps_what_somebody_may_need(tmp_path, name, history):
    folder = write_stored_run(tmp_path, None, curve=())
    if history is not None:
        (folder / "history.csv").write_text(history)
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"12345")
    assert runs(["--runs", str(tmp_path), "clean", "--yes"]) == 0
    assert (folder / name).read_bytes() == b"12345"
    (folder / name).unlink()


def test_overwriting_keeps_files_of_others_in_a_folder_that_is_no_run(tmp_path):
    folder = RunFolder(tmp_path / "run")
    for name in ("notes.txt", "checkpoints/repeat0-fold0/best.pt"):
        (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.path / name).write_text("1")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.png").write_text("1")
    (folder.path / "figures").symlink_to(tmp_path / "data")
    folder.clear()
    assert {path.name for path in folder.path.iterdir()} == {"notes.txt", "run.lock"}
    assert (tmp_path / "data" / "a.png").exists()
