"""A process that hangs when it is asked to stop."""

from __future__ import annotations

import os
import signal
import time

import pytest

from dml.core import deadline
from dml.core.exit_status import ExitStatus
from dml.core.signals import StopRequest
from tests import forked


def hang(ready: int) -> None:
    """Waits for something that never comes, as a library does that no handler interrupts."""
    never, _ = os.pipe()
    deadline.suspects.append(lambda: "process 1 has not answered for 12 s")
    deadline.note_saved("repeat0-fold1", 7)
    with deadline.end_in_time(), StopRequest():
        os.write(ready, b"x")
        os.read(never, 1)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(deadline, "STOP_SECONDS", 1.0)


@pytest.mark.promise(
    "guides/resume.md",
    "SIGTERM, and the run is not at the end of its step after eight seconds: it ends, and a line "
    "says from which step the same command continues",
)
def test_a_process_that_hangs_ends_with_a_line(short, capfd):
    is_ready, ready = os.pipe()
    process = forked.context().Process(target=hang, args=(ready,))
    process.start()
    os.read(is_ready, 1)
    os.kill(process.pid, signal.SIGTERM)
    process.join(30)
    assert process.exitcode == ExitStatus.TERMINATED
    line = capfd.readouterr().err
    assert line.startswith("ended by force ")
    assert " s after SIGTERM: process 1 has not answered for 12 s; " in line
    assert line.endswith("the same command continues repeat0-fold1 from step 7\n")


def test_a_process_that_stops_by_itself_is_not_ended(short):
    with deadline.end_in_time(), StopRequest() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop().status == ExitStatus.TERMINATED
        while not deadline.seconds_left() < 1.0:
            time.sleep(0.01)
    time.sleep(1.2)  # the process would be gone
    assert deadline.seconds_left() == 1.0
    assert signal.set_wakeup_fd(-1) == -1


def test_the_end_waits_for_no_forked_process(short):
    with deadline.end_in_time():
        process = forked.context().Process(target=signal.pause)
        process.start()
    assert process.is_alive()
    process.kill()


def test_the_reader_of_the_output_may_hang_too(short, capfd):
    """A full pipe that nobody reads takes no line."""
    is_ready, ready = os.pipe()

    def fill_and_hang():
        _, output = os.pipe()
        os.dup2(output, 2)
        os.set_blocking(2, False)
        try:
            while True:
                os.write(2, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(2, True)
        hang(ready)

    process = forked.context().Process(target=fill_and_hang)
    process.start()
    os.read(is_ready, 1)
    os.kill(process.pid, signal.SIGTERM)
    process.join(30)
    assert process.exitcode == ExitStatus.TERMINATED
