import errno
import json
import os
import shutil
import stat
import tempfile
from functools import partial
from pathlib import Path

import pytest

from dml.cli.runs_command import Removal, _remove, plan_removal
from dml.core.locks import Busy, try_lock
from dml.runs.folder.run_folder import RunFolder
from dml.runs.folder.stored_run import find_runs, find_unreadable, read_run
from tests.commands import plan, report, runs
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


@pytest.mark.parametrize("command", [runs, report, plan], ids=["runs", "report", "plan"])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["outputs=mine"], "outputs=mine: is a word of training; here it is --runs mine\n"),
        (["mft_table2", "outputs=mine"], "here it is --runs mine\n"),
        (["mft_table2", "+outputs="], "+outputs=: is a word of training; here it is --runs\n"),
        (["mft_table2", "--outputs", "mine"], "--outputs: no such option; did you mean '--runs'?"),
        (["mft_table2", "--outputs=mine"], "no such option; did you mean '--runs'?"),
    ],
)
def test_the_word_of_training_for_the_folder(outputs, capsys, command, words, message):
    assert command(words) == 2
    assert message in capsys.readouterr().err


def test_runs_are_compared_by_name(outputs, capsys):
    assert runs(["compare", "run0", "run1"]) == 0
    out = capsys.readouterr().out
    assert "+10.00" in out
    assert "curves      outputs/comparisons/" in out


def test_three_runs_are_compared(outputs, capsys):
    assert runs(["compare", "run0", "run1", "run2"]) == 0
    out = capsys.readouterr().out
    assert "curves      outputs/comparisons/" in out
    assert "name two runs for a comparison query by query" in out


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


def test_the_end_of_the_input_removes_nothing(outputs, capsys, monkeypatch):
    def end_input(question):
        raise EOFError

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", end_input)
    assert runs(["rm", "run2"]) == 0
    assert "nothing was removed" in capsys.readouterr().out
    assert len(find_runs(outputs)) == 3


def test_a_run_that_is_named_twice_is_removed_once(outputs, capsys):
    folder = next((outputs / "single").glob("*/seed0-*"))
    assert runs(["rm", "run0", str(folder), read_run(folder).id, "--yes"]) == 0
    out = capsys.readouterr().out
    assert out.count(folder.name) == 1
    listed, removed = out.splitlines()
    assert listed.split("  ")[0].strip() == removed.removeprefix("removed ")
    assert len(find_runs(outputs)) == 2


def test_a_pipe_gets_all_columns(outputs, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert runs([]) == 0
    assert "not shown" not in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "40")
    assert runs([]) == 0
    assert "not shown" in capsys.readouterr().out


def test_an_evaluation_makes_no_run_newer(outputs):
    folders = find_runs(outputs)
    for age, folder in enumerate(folders):
        for file in folder.rglob("*"):
            os.utime(file, (1000 - age, 1000 - age))
    before = [read_run(folder).written for folder in folders]
    (folders[-1] / "test_embeddings.npz").write_bytes(b"stored by a comparison")
    assert [read_run(folder).written for folder in folders] == before
    (folders[-1] / "history.csv").touch()
    assert read_run(folders[-1]).written > max(before)


def test_a_run_is_removed_by_its_folder_where_there_is_no_outputs(tmp_path, monkeypatch, capsys):
    folder = write_stored_run(tmp_path / "elsewhere")
    other = write_stored_run(tmp_path / "elsewhere", 0.6, seed=1)
    monkeypatch.chdir(tmp_path)
    assert runs(["compare", str(folder), str(other)]) == 0
    shutil.rmtree("outputs", ignore_errors=True)
    assert runs(["rm", str(folder), "--yes"]) == 0
    assert not folder.exists()
    assert runs(["rm", "1a2b", "--yes"]) == 1
    assert "there is no folder outputs" in capsys.readouterr().err


@pytest.fixture
def locked_away(monkeypatch):
    """Refuses to look into a folder, as with one of another user of mode 0700."""

    def lock(folder):
        def refuse(work, path, *more, **options):
            if isinstance(path, str | os.PathLike):
                # The status of a folder is that of its parent's entry; that of `/.` is its own.
                is_entry = work is os_stat and not os.fspath(path).endswith("/.")
                absolute = Path(path).absolute()
                if absolute.is_relative_to(folder) and not (is_entry and absolute == folder):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return work(path, *more, **options)

        for name in ("stat", "scandir", "listdir", "open"):
            monkeypatch.setattr(os, name, partial(refuse, getattr(os, name)))

    os_stat = os.stat
    return lock


@pytest.mark.parametrize("level", ["experiment", "run"])
@pytest.mark.promise(
    "runs.md",
    "a folder cannot be read, such as that of a colleague: a note names it, and the other runs are "
    "listed and reported",
)
def test_a_folder_that_cannot_be_read_is_named(outputs, capsys, caplog, locked_away, level):
    run = write_stored_run(outputs.parent / "more", 0.6, seed=9)
    if level == "experiment":
        folder = (outputs.parent / "more" / "single").rename(outputs / "other")
    else:
        folder = run.rename(outputs / "single" / run.parent.name / run.name)
    locked_away(folder)
    for words in ([], ["best"], ["state=finished", "--json"]):
        assert runs(words) == 0
        (note,) = caplog.messages
        assert f"{folder.relative_to(outputs.parent)} cannot be read (permission denied)" in note
        caplog.clear()
        assert "ms" in capsys.readouterr().out
    assert report(["single", "--no-figures"]) == 0
    assert ("cannot be read" in caplog.text) == (level == "run")
    assert runs(["rm", str(folder), "--yes"]) == 1
    assert "cannot be read: permission denied" in capsys.readouterr().err


@pytest.fixture
def open_folder():
    """A folder that other users may read, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        if not all(parent.stat().st_mode & stat.S_IXOTH for parent in Path(name).parents):
            pytest.skip("other users cannot reach the folder of temporary files")
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_a_folder_of_another_user(open_folder):
    """The kernel refuses, not a stand-in of it."""
    folder = write_stored_run(open_folder, 0.6)
    write_stored_run(open_folder, 0.6, seed=1)
    os.chmod(folder, 0o700)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresuid(65534, 65534, 65534)
            told = [path.name for path in find_unreadable(open_folder)]
            os.write(write, json.dumps([told, len(find_runs(open_folder))]).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with open(read) as answer:
        assert json.load(answer) == [[folder.name], 1]


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
        (["state=STOPED"], 2, "state: 'STOPED' does not exist; did you mean 'stopped'?"),
        (["state="], 2, "state: '' does not exist; one of finished, running"),
        (["clean", "state=stopped,fail"], 2, "did you mean 'failed'?"),
        (["compare", "run0", "run1", "--json"], 2, "leave out --json"),
        (["compare", "run0", "run1", "run1", "--json"], 2, "leave out --json"),
        (["compare", "run0"], 2, "compare: takes two or more runs"),
        (["compare", "run0", "run1", "no"], 1, "'no' is neither the id, name or folder of a run"),
        (["compare", "run0", "a.npz", "run1"], 2, "a.npz: a file of embeddings is compared with"),
        (["compare", "run0", "run1", "run2", "--metrics", "map_at_r"], 2, "--metrics: compares"),
        (["--yes"], 2, "--yes: is an option of rm and clean"),
        (["best", "--yes"], 2, "--yes: is an option of rm and clean"),
        (["clean", "--json"], 2, "--json: clean prints text only"),
        (["rm", "run0", "--json"], 2, "--json: rm prints text only"),
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


@pytest.mark.parametrize("parent", ["wandb", "tensorboard"])
def test_folders_above_a_run_may_be_called_as_those_of_trackers(tmp_path, parent):
    outputs = tmp_path / parent / "outputs"
    folder = write_stored_run(outputs, None, curve=())
    (folder / parent).mkdir()
    (folder / parent / "events").write_bytes(b"12345")
    notes = folder / "notes.txt"
    notes.write_text("mine")
    assert runs(["--runs", str(outputs), "clean", "--yes"]) == 0
    assert notes.read_text() == "mine"
    notes.unlink()
    assert runs(["--runs", str(outputs), "clean", "--yes"]) == 0
    assert not folder.exists()


def test_a_linked_file_stays_and_is_not_counted(tmp_path, capsys):
    folder = write_stored_run(tmp_path / "outputs")
    images = tmp_path / "images.npy"
    images.write_bytes(bytes(5_000_000))
    (folder / "images.npy").symlink_to(images)
    assert read_run(folder).size < 100_000
    assert runs(["--runs", str(tmp_path / "outputs"), "rm", str(folder), "--yes"]) == 0
    assert "MB" not in capsys.readouterr().out
    assert not folder.exists()
    assert images.stat().st_size == 5_000_000


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
