import os
import pickle
import signal
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from dml.core.locks import Busy, is_locked, try_lock

FORK = get_context("fork")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "run.lock"


class Holder:
    """Another process that holds the lock, with a child of its own that outlives it."""

    def __init__(self, path: Path) -> None:
        ours, theirs = FORK.Pipe()
        self.process = FORK.Process(target=self._hold, args=(path, theirs))
        self.process.start()
        self.child = ours.recv()

    def _hold(self, path: Path, connection: Connection) -> None:
        with try_lock(path):
            child = os.fork()
            if child:
                connection.send(child)
            time.sleep(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def __enter__(self) -> "Holder":
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        os.kill(self.child, signal.SIGKILL)


def test_file_names_the_holder_only_while_the_lock_is_held(path: Path):
    with try_lock(path):
        assert path.read_text().startswith(f"process {os.getpid()} on ")
        with pytest.raises(Busy) as error, try_lock(path):
            pass
        assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)  # joblib sends it
        assert path.read_text().startswith(f"process {os.getpid()} on ")
    assert path.read_text() == ""


def test_killed_holder_frees_the_lock_though_its_child_lives(path: Path):
    with Holder(path) as holder:
        with pytest.raises(Busy) as error, try_lock(path):
            pass
        assert f"by process {holder.process.pid} on " in str(error.value)
        holder.kill()
        with try_lock(path):
            pass


def test_a_lock_is_seen_only_while_it_is_held(path: Path):
    assert not is_locked(path)
    with try_lock(path):
        assert is_locked(path)
    assert not is_locked(path)
    path.write_text("process 1 on a machine that was switched off\n")
    assert not is_locked(path)
