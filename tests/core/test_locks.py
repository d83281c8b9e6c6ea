import os
import pickle
import signal
import time
from multiprocessing import get_context
from pathlib import Path

import pytest

from dml.core.locks import Busy, is_locked, try_lock

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
