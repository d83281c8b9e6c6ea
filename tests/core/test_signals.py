"""Requests to stop: once however often they come, and never lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dml.core import signals
from dml.core.errors import RunStopped, find_interruption
from dml.core.signals import StopRequest, pending_stop, raise_on_signals

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def send(number, times=1):
    for _ in range(times):
        os.kill(os.getpid(), number)


@pytest.fixture
def later(monkeypatch):
    """Moves the clock of the signals."""
    now = [0.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])

    def move(seconds):
        now[0] += seconds

    return move


@pytest.mark.promise(
    "guides/resume.md",
    "Ctrl-C comes twice within a second: it counts once; a later one interrupts at once",
)
def test_a_second_interruption(later):
    with StopRequest() as stop:
        send(signal.SIGINT)
        later(0.1)
        send(signal.SIGINT, times=3)
        assert stop().status == 130
        later(1.0)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_a_second_interruption_while_the_first_one_is_raised():
    unwound = []

    def work():
        try:
            send(signal.SIGINT)
        finally:
            send(signal.SIGINT)
            unwound.append(True)

    with pytest.raises(KeyboardInterrupt), raise_on_signals():
        work()
    assert unwound


@pytest.mark.parametrize("number", signals.SIGNALS)
@pytest.mark.parametrize("fails", [False, True])
def test_a_signal_after_the_last_step_stops_what_follows(number, fails):
    ended = []

    def work():
        with StopRequest() as stop:
            assert stop() is None
            send(number)
        ended.append(True)
        if fails:
            raise ValueError

    with pytest.raises((RunStopped, KeyboardInterrupt)) as caught, raise_on_signals():
        work()
    assert ended
    assert getattr(caught.value, "status", 130) == 128 + number
    with raise_on_signals(), StopRequest() as stop:  # of a later run
        assert stop() is None


@pytest.mark.parametrize("former", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("last", [signal.SIGTERM, signal.SIGHUP])
def test_the_last_of_several_signals_is_reported(former, last, later):
    with StopRequest() as stop:
        send(former)
        later(2.0)
        send(last)
        for request in (stop(), pending_stop()):
            assert request.status == 128 + last
            assert str(request) == f"stopped by {last.name}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("saved", [False, True])
def test_a_stop_says_whether_something_is_saved(number, saved):
    with pytest.raises(RunStopped) as caught, raise_on_signals(saved):
        send(number)
    assert caught.value.saved == saved
    with pytest.raises(RunStopped) as caught, raise_on_signals(saved), StopRequest():
        send(number)
    assert caught.value.saved == saved


@pytest.mark.parametrize(("saved", "error"), [(False, KeyboardInterrupt), (True, RunStopped)])
def test_an_interruption_is_a_stop_if_something_is_saved(saved, error):
    with pytest.raises(error) as caught, raise_on_signals(saved):
        send(signal.SIGINT)
    assert getattr(caught.value, "saved", False) == saved
    assert getattr(caught.value, "status", 130) == 130


def test_an_error_that_an_interruption_has_caused():
    def interrupt():
        try:
            raise KeyboardInterrupt
        finally:
            None.attribute  # noqa: B018

    with pytest.raises(AttributeError) as caught:
        interrupt()
    assert isinstance(find_interruption(caught.value), KeyboardInterrupt)
    assert find_interruption(ValueError()) is None


COMMAND = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Signal(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
            for _ in range(1000):
                pass
            print("went on")

sys.meta_path.insert(0, Signal())
from dml.cli.entry_point import main
sys.exit(main({words!r}))
"""
LINES = {2: "interrupted\n", 15: "stopped by SIGTERM\n", 1: "stopped by SIGHUP\n"}


@pytest.mark.parametrize("number", LINES)
@pytest.mark.parametrize("module", ["dml.cli.program", "hydra", "dml.runs.experiment"])
@pytest.mark.promise(
    "guides/resume.md",
    "a command is interrupted before its work has begun: it ends in one line, at once",
)
def test_a_signal_while_modules_are_loaded(module, number, tmp_path):
    words = ["train", "data=digits", "protocol.epochs=1"]
    code = COMMAND.format(module=module, number=number, words=words)
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", LINES[number])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", LINES)
def test_a_signal_after_the_end_changes_nothing(number, tmp_path):
    code = (
        "import atexit, os, sys\n"
        "from dml.cli.entry_point import main\n"
        "status = main(['--version'])\n"
        f"atexit.register(os.kill, os.getpid(), {number})\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, process=os.getpid()):\n"
        f"        kill(process, {number})\n"
        "sys.late = Late()\n"
        "sys.exit(status)\n"
    )
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
