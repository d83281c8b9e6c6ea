"""A lock of the folder of runs that two processes of torchrun try against each other."""

import os
import socket
from contextlib import contextmanager
from pathlib import Path

import pytest

from dml.cli.machine import disk, shared_locks
from dml.cli.machine.shared_locks import try_locks_of
from dml.core.errors import UserError
from dml.core.locks import Busy, try_lock
from dml.training.process_group import distributed_session
from tests.training.processes import in_two_processes

HOST = socket.gethostname()


def lock_together():
    with distributed_session("cpu") as world:
        outcome = try_locks_of(Path(os.environ["OUT"]) / "outputs", world)
    return [outcome.state, outcome.result]


def is_second():
    return os.environ["RANK"] == "1"


def lock_on_two_machines():
    socket.gethostname = lambda: f"node{os.environ['RANK']}"
    return lock_together()


@contextmanager
def no_lock(path):
    """A disk whose locks do nothing."""
    path.touch()
    yield


def lock_without_locks():
    disk.try_lock = shared_locks.try_lock = no_lock
    return lock_together()


def lock_where_the_second_machine_has_locks_of_its_own():
    """As with NFS that is mounted with `nolock` there."""
    if is_second():
        disk.try_lock = shared_locks.try_lock = no_lock
    return lock_together()


def lock_that_stays_locked():
    """The second process does not learn that the first one has released the lock."""

    @contextmanager
    def refuse(path):
        raise Busy(path)
        yield

    if is_second():
        shared_locks.try_lock = refuse
    return lock_together()


def lock_where_the_second_may_not_write():
    @contextmanager
    def refuse(path):
        raise UserError("outputs: cannot write to x: Permission denied")
        yield

    if is_second():
        disk.try_lock = shared_locks.try_lock = refuse
    return lock_together()


def lock_in_a_folder_of_the_first_machine():
    shared_locks.SEEN_SECONDS = 0.0
    if is_second():
        Path.exists = lambda path: False
        socket.gethostname = lambda: "node1"
    return lock_together()


SECOND_GETS_IT = f"process 1 on {HOST} gets the lock while process 0 holds it"


@pytest.mark.parametrize(
    ("work", "state", "result"),
    [
        (lock_together, "ok", "refused while another process held it, and free after that"),
        (lock_on_two_machines, "ok", "2 processes on 2 machines, each in turn"),
        (lock_without_locks, "FAILED", SECOND_GETS_IT),
        (lock_where_the_second_machine_has_locks_of_its_own, "FAILED", SECOND_GETS_IT),
        (lock_that_stays_locked, "FAILED", "does not get the lock, which no process holds"),
        (lock_where_the_second_may_not_write, "FAILED", "cannot write to x: Permission denied"),
        (lock_in_a_folder_of_the_first_machine, "note", "1 of 2 processes see the folder; not on"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_process_holds_the_lock_in_turn(tmp_path, work, state, result):
    first, second = in_two_processes(work, tmp_path)
    assert first == second
    assert first[0] == state
    assert result in first[1]
    assert not (tmp_path / "outputs").exists()


def test_a_lock_is_tried_in_each_direction(tmp_path):
    """Only while the second process holds it does the first one get it."""
    expected = f"process 0 on {HOST} gets the lock while process 1 holds it"
    assert (
        in_two_processes(lock_where_the_first_has_no_locks, tmp_path) == [["FAILED", expected]] * 2
    )


def lock_where_the_first_has_no_locks():
    if not is_second():
        disk.try_lock = no_lock
        shared_locks.try_lock = try_lock
    return lock_together()
