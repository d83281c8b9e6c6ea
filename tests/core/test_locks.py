import errno
import fcntl
import os
import pickle
import re
import shutil
import signal
import socket
import threading
import time
from multiprocessing import get_context
from pathlib import Path

import pytest

from dml.core import locks, waits
from dml.core.atomic_io import write_text
from dml.core.errors import RunStopped, UserError
from dml.core.locks import (
    Busy,
    FolderGone,
    HolderWait,
    is_locked,
    lock_all,
    share_folder,
    try_lock,
    wait_for_lock,
)
from dml.core.replaced_folder import replace_folder
from dml.core.signals import StopRequest
from dml.core.waits import NoAnswerError
from tests import forked

FORK = get_context("fork")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "run.lock"


def test_file_names_the_holder_only_while_the_lock_is_held(path: Path):
    with try_lock(path):
        assert path.read_text().startswith(f"process {os.getpid()} on ")
        with pytest.raises(Busy) as error, try_lock(path):
            pass
        assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)  # joblib sends it
        assert path.read_text().startswith(f"process {os.getpid()} on ")
    assert path.read_text() == ""


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
@pytest.mark.promise(
    "guides/cluster_and_several_gpus.md",
    "Where a file system says that it has no locks, a run ends in one line before it trains",
)
def test_a_file_system_without_locks_is_named(path: Path, monkeypatch, number):
    def refuse(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    no_locks = "outputs: .*/folder: its file system has no file locks"
    with pytest.raises(UserError, match=no_locks), try_lock(path):
        pass
    with pytest.raises(OSError, match="no file locks") as raised, wait_for_lock(path):
        pass
    assert raised.value.filename == str(path)
    with replace_folder(path.parent / "network", ["net"]) as new:  # needs none
        (new / "net").touch()
    assert (path.parent / "network" / "net").exists()


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ENOTCONN])
def test_a_folder_that_cannot_be_reached_is_not_called_deleted(path: Path, monkeypatch, number):
    stat = Path.stat

    def fail(self, **options):
        if self == path:
            raise OSError(number, os.strerror(number))
        return stat(self, **options)

    with try_lock(path), monkeypatch.context() as patch:
        patch.setattr(Path, "stat", fail)
        with pytest.raises(UserError, match=rf"cannot be reached \({os.strerror(number)}\)"):
            write_text(path.with_name("scores"), "")


def test_killed_holder_frees_the_lock_though_its_child_lives(path: Path):
    ours, theirs = FORK.Pipe()

    def hold() -> None:
        with try_lock(path):
            if child := os.fork():
                theirs.send(child)
            time.sleep(60)

    holder = FORK.Process(target=hold)
    holder.start()
    child = ours.recv()
    try:
        with pytest.raises(Busy, match=f"by process {holder.pid} on "), try_lock(path):
            pass
        holder.kill()
        holder.join()
        with try_lock(path):
            pass
    finally:
        holder.kill()
        os.kill(child, signal.SIGKILL)


def test_a_lock_is_seen_only_while_it_is_held(path: Path):
    assert not is_locked(path)
    with try_lock(path):
        assert is_locked(path)
    assert not is_locked(path)
    path.write_text("process 1 on a machine that was switched off\n")
    assert not is_locked(path)


def open_for_reading_alone(path, mode):
    """Opens a file of another user."""
    if "+" in mode:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return open(path, mode)


@pytest.mark.promise(
    "runs.md", "a process works in a folder, of this user or another: the run is listed as running"
)
def test_the_lock_of_another_user_is_seen(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(locks, "open", open_for_reading_alone, raising=False)
    with try_lock(path):
        assert is_locked(path)
    path.write_text("process 1 on a machine that was switched off\n")
    assert not is_locked(path)


def test_the_lock_of_another_user_where_reading_is_not_enough(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As on NFS: the holder is known by its touches."""

    def refuse(file, operation):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(locks, "open", open_for_reading_alone, raising=False)
    with try_lock(path):
        monkeypatch.setattr(fcntl, "flock", refuse)
        assert is_locked(path)
        past = time.time() - 2 * locks.SILENT_SECONDS
        os.utime(path, (past, past))
        assert not is_locked(path)
        monkeypatch.undo()


@pytest.mark.parametrize("below", ["", "checkpoints/repeat0-fold0", "search/trials/0003"])
def test_nothing_is_written_below_a_lock_that_is_gone(path: Path, below: str):
    folder = path.parent / below
    with try_lock(path):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "before.txt", "x")
        path.parent.rename(path.parent.with_name("moved"))
        folder.mkdir(parents=True)
        with pytest.raises(UserError, match=f"{path.parent} was deleted, moved or replaced"):
            write_text(folder / "after.txt", "x")
        write_text(path.parent.with_name("beside.txt"), "x")
    assert not (folder / "after.txt").exists()


@pytest.mark.parametrize("held", ["run.lock", "a/run.lock", "search/trials/0003/run.lock"])
def test_all_locks_of_a_folder_are_held_or_none(path: Path, held: str):
    folder = path.parent
    others = [folder / name for name in ("a/run.lock", "search/trials/0003/run.lock")]
    for lock in others:
        lock.parent.mkdir(parents=True)
        lock.touch()
    with try_lock(folder / held):
        with pytest.raises(Busy), lock_all(folder, "run.lock"):
            pass
        assert [lock for lock in (path, *others) if is_locked(lock)] == [folder / held]
    with lock_all(folder, "run.lock"):
        for lock in (path, *others):
            with pytest.raises(Busy), try_lock(lock):
                pass
    assert not any(map(is_locked, (path, *others)))


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(locks, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(waits, "NOTE_SECONDS", 1.0)
    monkeypatch.setattr(waits, "LIMIT_SECONDS", 2.0)


@pytest.fixture
def holder(impatient, tmp_path):
    """A process that holds a lock until it is killed."""

    def hold():
        with try_lock(tmp_path / "claim.lock"):
            signal.pause()

    process = forked.context().Process(target=hold)
    process.start()
    while not is_locked(tmp_path / "claim.lock"):
        time.sleep(0.01)
    yield process
    process.kill()


def test_a_holder_that_works_is_waited_for(holder, tmp_path, capsys):
    """For much longer than one that is silent."""
    threading.Timer(2.7, holder.kill).start()
    with wait_for_lock(tmp_path / "claim.lock"):
        assert not holder.is_alive()
    assert capsys.readouterr().err == ""


def test_a_stopped_holder_is_named(holder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(locks, "kill_child", lambda path: False)
    os.kill(holder.pid, signal.SIGSTOP)
    with pytest.raises(NoAnswerError, match=f"process {holder.pid} on .* not answered"):
        wait_for_lock(tmp_path / "claim.lock").__enter__()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"note: process {holder.pid} on {socket.gethostname()} holds")


def test_a_stopped_child_is_ended(holder, tmp_path, capsys):
    os.kill(holder.pid, signal.SIGSTOP)
    with wait_for_lock(tmp_path / "claim.lock"):
        pass
    assert "did not answer and was ended" in capsys.readouterr().err


def test_a_signal_ends_the_wait_for_a_lock(holder, tmp_path, capsys):
    os.kill(holder.pid, signal.SIGSTOP)
    with StopRequest():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(RunStopped):
            wait_for_lock(tmp_path / "claim.lock").__enter__()


def test_time_in_which_this_process_was_stopped_counts_for_nobody(holder, tmp_path, monkeypatch):
    """As after Ctrl-Z, which stops a terminal's processes together."""
    monkeypatch.setattr(locks, "kill_child", lambda path: False)
    os.kill(holder.pid, signal.SIGSTOP)
    seconds = iter([0.0, 1.0, 1001.0, 1002.0, 1002.9, 1004.0])
    monkeypatch.setattr(waits.time, "monotonic", lambda: next(seconds))
    silence = HolderWait()  # at 0
    for _ in range(4):
        silence.check([tmp_path / "claim.lock"])
    with pytest.raises(NoAnswerError, match="for 3 s"):
        silence.check([tmp_path / "claim.lock"])


def test_only_a_child_of_this_machine_is_ended(holder, tmp_path):
    """Numbers of processes are those of a machine."""
    path = tmp_path / "another.lock"
    for name in (f"process {holder.pid} on elsewhere", f"process {os.getpid()} on here", "", "x"):
        path.write_text(name)
        assert not locks.kill_child(path)
        assert holder.is_alive()
    path.write_text(f"process {holder.pid} on {socket.gethostname()}\n")
    assert locks.kill_child(path)
    assert not holder.is_alive()


def test_a_child_gives_no_sign_of_life_of_its_parent(impatient, tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "kill_child", lambda path: False)
    held, of_child = tmp_path / "claim.lock", tmp_path / "child" / "claim.lock"

    def live():
        with try_lock(of_child):
            signal.pause()

    def hold():
        with try_lock(held):
            child = FORK.Process(target=live)
            child.start()
            signal.pause()

    process = forked.context().Process(target=hold)
    process.start()
    while not is_locked(of_child):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGSTOP)

    def wait():
        silence, end = HolderWait(), time.monotonic() + 15
        while time.monotonic() < end:
            silence.check([held])
            time.sleep(0.05)

    try:
        with pytest.raises(NoAnswerError, match=f"process {process.pid} on"):
            wait()
    finally:
        process.kill()
        os.kill(int(of_child.read_text().split()[1]), signal.SIGKILL)


def test_a_shared_folder_that_is_gone_is_named(tmp_path):
    folder = tmp_path / "study"

    def write(name):
        with share_folder(folder):
            if name == "journal.log":
                folder.rename(tmp_path / "moved")
            (folder / name).write_text("")

    with pytest.raises(FolderGone, match="study was deleted, moved or replaced"):
        write("journal.log")
    with pytest.raises(FileNotFoundError):  # for another reason
        write("absent/journal.log")


def test_contexts_of_a_shared_folder_are_nested(tmp_path):
    """As of a search in the process of a worker, whose training runs follow it."""
    folder = tmp_path / "study"
    with share_folder(folder):
        with share_folder(folder):
            write_text(folder / "journal.log", "")
        write_text(folder / "history.csv", "")
        folder.rename(tmp_path / "moved")
        with pytest.raises(FolderGone, match="study was deleted, moved or replaced"):
            write_text(folder / "scores", "")
    write_text(folder / "of_nobody", "")  # the folder is no longer shared


def test_a_current_folder_that_is_gone_is_named(tmp_path: Path, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    with try_lock(Path("outputs/run/run.lock")):
        shutil.rmtree(work)
        with pytest.raises(FolderGone, match="outputs/run was deleted, moved or replaced"):
            write_text("outputs/run/scores", "")


def test_a_folder_of_another_user_is_an_error_with_a_remedy(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("dml.core.locks._acquire", refuse)
    message = f"outputs: cannot write to {tmp_path}: Permission denied; set outputs=<folder"
    with pytest.raises(UserError, match=re.escape(message)), try_lock(tmp_path / "run.lock"):
        pass
