"""Checkpoints that are written beside training: their order, their errors, and their end."""

import errno
import os
import pickle
import threading
from pathlib import Path

import pytest
import torch

from dml.core.errors import UserError
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


def test_the_best_is_written_before_the_last(checkpoints, disk):
    disk.go.set()
    for step in (1, 2, 3):
        if step == 2:
            checkpoints.keep_best(state_of(step))
        checkpoints.save(state_of(step))
    checkpoints.wait()
    assert disk.synced == ["last", "best", "last", "last"]
    files = (checkpoints.best, checkpoints.last)
    assert [read_checkpoint(path)["step"] for path in files] == [2, 3]
    assert not list(checkpoints.folder.glob("*.partial"))


def test_the_best_state_is_that_of_its_evaluation(checkpoints, disk):
    state = state_of(1)
    checkpoints.keep_best(state)
    state["weights"] += 5
    disk.go.set()
    checkpoints.save(state_of(2))
    assert torch.equal(checkpoints.load_best()["weights"], torch.full((1000,), 1.0))


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
    assert torch.equal(checkpoints.load()["weights"], torch.full((1000,), 2.0))


def test_an_error_of_the_disk_is_raised_while_training_waits(checkpoints, disk):
    disk.full = True
    disk.go.set()
    checkpoints.save(state_of(1))
    checkpoints.wait_quietly()
    with pytest.raises(UserError, match=r"last\.pt: No space left on device; .* free some space"):
        checkpoints.wait()
    assert Checkpoints(checkpoints.folder, {}).load() is None


def test_damaged_checkpoints_and_those_of_another_run_are_refused(checkpoints):
    checkpoints.save(state_of(1))
    checkpoints.wait()
    with pytest.raises(UserError, match="made with loss=mfcont, this run has loss=ms"):
        Checkpoints(checkpoints.folder, {"loss": "ms"}).load()
    checkpoints.last.write_bytes(checkpoints.last.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"last\.pt is not a complete checkpoint"):
        checkpoints.load()


class Foreign:
    """A class of another program."""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (torch.nn.Linear(2, 2), "another program wrote it, with classes that are not loaded"),
        (Foreign(), "another program wrote it, with classes that are not loaded"),
        ({"epoch": 3, "net": Foreign()}, "another program wrote it, with classes"),
        ({"epoch": 3, "state_dict": {}}, r"wrote it \(a dictionary of epoch, state_dict\)"),
        (torch.nn.Linear(2, 2).state_dict(), r"wrote it \(a dictionary of weight, bias\)"),
        (torch.zeros(3), r"wrote it \(Tensor\)"),
        ([1, 2], r"wrote it \(list\)"),
        ({}, "another program wrote it"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_checkpoints_of_other_programs_are_called_so(tmp_path, content, message, zipped):
    """As `torch.save` writes them today, and as it did before 2020."""
    path = tmp_path / "last.pt"
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match=f"^resume: .*is no checkpoint of a run: .*{message}"):
        Checkpoints(tmp_path, {}).load()
    with pytest.raises(UserError, match=r"^load: .*; train again$"):
        read_checkpoint(path, "load", "train again")


def test_other_files_are_no_checkpoints(tmp_path):
    path = tmp_path / "last.pt"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(UserError, match="is no checkpoint of a run, but a pickle of another"):
        read_checkpoint(path)
    for content in (b"", b"{", b"PK\x03\x04", bytes(1000), b"a" * 5000):
        path.write_bytes(content)
        with pytest.raises(UserError, match="is not a complete checkpoint"):
            read_checkpoint(path)


@pytest.mark.parametrize(
    ("made_with", "continued_with", "differing"),
    [
        ({"loss": "ms"}, {"loss": "ms", "lr": 0.1}, "lr"),
        ({"loss": "ms", "lr": 0.1}, {"loss": "ms"}, "lr"),
        ({"lr": 1}, {"lr": 1.0}, "lr"),
        ({"lr": float("nan"), "steps": [1, 2]}, {"lr": float("nan"), "steps": [1, 2]}, None),
        ({"steps": [1, 2]}, {"steps": [2, 1]}, "steps"),
    ],
)
@pytest.mark.parametrize("kind", ["last", "best"])
def test_every_part_of_the_identity_counts(tmp_path, made_with, continued_with, differing, kind):
    earlier = Checkpoints(tmp_path, made_with)
    earlier.keep_best(state_of(1))
    earlier.save(state_of(1))
    earlier.wait()
    later = Checkpoints(tmp_path, continued_with)
    load = {"last": later.load, "best": later.load_best}[kind]
    if differing is None:
        assert load()["step"] == 1
        return
    with pytest.raises(UserError, match=f"made with {differing}=.*overwrite=true starts over"):
        load()


def with_best(folder):
    """A folder with the last and the best state of a run."""
    first = Checkpoints(folder, {})
    first.keep_best(state_of(1))
    first.save(state_of(1))
    first.wait()
    return first


def test_a_continued_run_needs_its_best_weights_at_the_start(tmp_path):
    with_best(tmp_path).best.unlink()
    with pytest.raises(UserError, match=r"resume: .*best\.pt is missing; overwrite=true"):
        Checkpoints(tmp_path, {}).load()


@pytest.mark.parametrize("continued", [False, True])
def test_best_weights_that_vanish_while_a_run_trains_are_missed_at_the_next_save(
    tmp_path, continued
):
    checkpoints = with_best(tmp_path)
    if continued:
        checkpoints = Checkpoints(tmp_path, {})
        assert checkpoints.load()["step"] == 1
    checkpoints.best.unlink()
    checkpoints.save(state_of(2))
    with pytest.raises(UserError, match=r"best\.pt was deleted, moved or replaced"):
        checkpoints.wait()


def test_a_run_without_best_weights_continues_without_them(tmp_path):
    first = Checkpoints(tmp_path, {})
    first.save(state_of(1))
    first.wait()
    checkpoints = Checkpoints(tmp_path, {})
    assert checkpoints.load()["step"] == 1
    checkpoints.save(state_of(2))
    checkpoints.wait()
    assert checkpoints.load()["step"] == 2


def test_a_finished_run_keeps_its_best_weights_alone(tmp_path):
    checkpoints = with_best(tmp_path)
    checkpoints.remove_states()
    assert [path.name for path in tmp_path.iterdir()] == ["best.pt"]
    assert checkpoints.load_best()["step"] == 1
