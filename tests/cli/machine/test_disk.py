"""The folder of runs: written to, locked, measured, and left as it was."""

import errno
import multiprocessing
import os
import shutil
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from dml.cli.machine import disk, processes
from dml.cli.machine.disk import scratch_folder, try_locks, try_space, try_writing
from dml.core.errors import RunStopped, UserError


@pytest.fixture(autouse=True)
def _fast(monkeypatch):
    monkeypatch.setattr(processes, "START", "fork")
    monkeypatch.setattr(disk, "SAMPLE_BYTES", 1 << 20)
    monkeypatch.setattr(disk, "FREE_SECONDS", 1.0)


@contextmanager
def no_lock(path):
    """A disk whose locks do nothing."""
    path.touch()
    yield


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("attempt", [try_writing, try_locks])
def test_a_disk_that_works_is_left_as_it_was(tmp_path, attempt, exists):
    outputs = tmp_path / "shared" / "outputs"
    if exists:
        outputs.mkdir(parents=True)
        (outputs / "mine").write_text("mine")
    outcome = attempt(outputs)
    assert outcome.works, outcome
    assert [path.name for path in tmp_path.iterdir()] == ["shared"] * exists
    if exists:
        assert [path.name for path in outputs.iterdir()] == ["mine"]


def test_locks_are_tried_while_held_and_after_the_holder_was_killed(tmp_path):
    outcome = try_locks(tmp_path)
    assert outcome.result == "refused while it was held, free when its holder was killed"


def test_locks_that_do_nothing_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "try_lock", no_lock)
    outcome = try_locks(tmp_path)
    assert not outcome.works
    assert outcome.result == "two processes hold one lock at once"
    assert "flock" in outcome.remedy
    assert not [*tmp_path.iterdir()]


def test_a_lock_that_outlives_its_holder_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "can_lock", lambda lock: False)
    outcome = try_locks(tmp_path)
    assert not outcome.works
    assert outcome.result == "the lock of a killed process is held after 1 s"


def test_a_disk_without_locks(tmp_path, monkeypatch):
    def refuse(path):
        raise UserError("outputs: cannot write to x: this disk has no locks")

    monkeypatch.setattr(disk, "try_lock", refuse)
    outcome = try_locks(tmp_path)
    assert not outcome.works
    assert outcome.result.endswith("this disk has no locks")


@pytest.mark.promise(
    "guides/check_a_machine.md",
    "the folder cannot be written to, or has no locks: the lines say so, the rest is tried, and "
    "the exit status is 1",
)
@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_disk_that_cannot_be_written_to(tmp_path, monkeypatch, code):
    def refuse(**options):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(disk.tempfile, "mkdtemp", refuse)
    for attempt in (try_writing, try_locks):
        with pytest.raises(UserError, match=f"cannot write to .*: {os.strerror(code)}"):
            attempt(tmp_path / "outputs")
    assert not [*tmp_path.iterdir()] or [*tmp_path.iterdir()] == [tmp_path / "outputs"]


def test_a_full_disk(tmp_path, monkeypatch):
    @contextmanager
    def fill(path):
        yield path
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(disk, "replace_file", fill)
    outcome = try_writing(tmp_path)
    assert not outcome.works
    assert outcome.result == "No space left on device"
    assert not [*tmp_path.iterdir()]


def test_other_bytes_are_noticed(tmp_path, monkeypatch):
    @contextmanager
    def corrupt(path):
        yield path
        path.write_bytes(b"other")

    monkeypatch.setattr(disk, "replace_file", corrupt)
    assert try_writing(tmp_path).result == "other bytes are read than were written"


@pytest.mark.parametrize(
    ("free", "state"),
    [(4 << 30, "ok"), ((4 << 30) - 1, "note"), (1 << 30, "note"), ((1 << 30) - 1, "FAILED")],
)
def test_free_space(tmp_path, monkeypatch, free, state):
    measured = []

    def measure(path):
        measured.append(path)
        return SimpleNamespace(free=free)

    monkeypatch.setattr(shutil, "disk_usage", measure)
    outcome = try_space(tmp_path / "not" / "there")
    assert outcome.state == state
    assert measured == [tmp_path]
    assert outcome.result == f"{free / 1e9:.1f} GB"


@pytest.mark.promise(
    "guides/check_a_machine.md",
    "the command is stopped: its processes end, and what it has written is removed",
)
def test_a_stop_ends_processes_and_leaves_nothing(tmp_path, monkeypatch):
    def stop(answer, seconds):
        assert answer.recv() == ""  # the process holds the lock
        raise RunStopped("stopped by SIGTERM", 143)

    monkeypatch.setattr(disk, "receive", stop)
    with pytest.raises(RunStopped):
        try_locks(tmp_path / "outputs")
    assert not multiprocessing.active_children()
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_a_run_has_written_to_meanwhile_stays(tmp_path):
    outputs = tmp_path / "shared" / "outputs"
    with scratch_folder(outputs):
        (outputs / "single").mkdir()
    assert [path.name for path in outputs.iterdir()] == ["single"]
