"""Checkpoints that are written beside training: their order, their errors, and their end."""

import contextlib
import errno
import os
import threading
from pathlib import Path

import pytest
import torch

from dml.core.errors import RunStopped
from dml.training.checkpoint_files import Checkpoints, read_checkpoint


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path, {"loss": "mfcont"})


def state_of(step):
    return {"step": step, "weights": torch.full((1000,), float(step))}


class Disk:
    """Syncs checkpoints once `go` is set; may be full.

    Attributes:
        synced: the checkpoints, in order.
    """

    def __init__(self):
        self.go, self.full, self.synced, self._sync = threading.Event(), False, [], os.fsync

    def sync(self, descriptor):
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        if name.endswith(".partial"):
            assert self.go.wait(30)
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.synced.append(name.split(".")[1])
        self._sync(descriptor)


@pytest.fixture
def disk(monkeypatch):
    disk = Disk()
    monkeypatch.setattr(os, "fsync", disk.sync)
    yield disk
    disk.go.set()


def test_the_best_is_written_before_the_last_and_the_last_becomes_the_previous(checkpoints, disk):
    disk.go.set()
    for step in (1, 2, 3):
        if step == 2:
            checkpoints.keep_best(state_of(step))
        checkpoints.save(state_of(step))
    checkpoints.wait()
    assert disk.synced == ["last", "best", "last", "last"]
    files = (checkpoints.best, checkpoints.previous, checkpoints.last)
    assert [read_checkpoint(path)["step"] for path in files] == [2, 2, 3]
    assert not list(checkpoints.folder.glob("*.partial"))


def test_training_goes_on_beside_a_write_and_the_next_waits_for_it(checkpoints, disk):
    state = state_of(1)
    checkpoints.save(state)
    state["weights"] += 5
    assert not checkpoints.last.exists()
    second = threading.Thread(target=checkpoints.save, args=(state_of(2),))
    second.start()
    second.join(0.1)
    assert second.is_alive()
    disk.go.set()
    second.join(30)
    assert torch.equal(checkpoints.load()[0]["weights"], torch.full((1000,), 2.0))
    assert torch.equal(read_checkpoint(checkpoints.previous)["weights"], torch.ones(1000))


def train(checkpoints, ending):
    """Saves a state and ends in one way or another."""
    with checkpoints.until_written():
        checkpoints.save(state_of(1))
        if ending is not None:
            raise ending


STOPPED, BROKEN = RunStopped("stopped by SIGINT", 130), ValueError("broken")


@pytest.mark.parametrize("ending", [None, STOPPED, BROKEN])
def test_everything_is_written_however_training_ends(checkpoints, disk, ending):
    threading.Timer(0.2, disk.go.set).start()
    with contextlib.suppress(RunStopped, ValueError):
        train(checkpoints, ending)
    assert read_checkpoint(checkpoints.last)["step"] == 1
