"""Silence of other processes: a line for each, an end, and none for those that are gone."""

import signal

import pytest

from dml.core import signals, waits
from dml.core.errors import RunStopped
from dml.core.run_log import write_log
from dml.core.waits import NoAnswerError, SignsOfLife, Wait


def silence():
    return "process 7 holds it", "end it"


def notes(capsys):
    return capsys.readouterr().err.splitlines()


def test_each_long_silence_has_a_line(capsys, tmp_path):
    wait = Wait(silence)
    with write_log(tmp_path, "run"):
        for seconds in (29, 31, 32, 599):
            wait.check(seconds)
        assert notes(capsys) == ["note: process 7 holds it for 31 s; end it"]
        wait.check(1)  # there was a sign of life
        for seconds in (29, 33, 34):
            wait.check(seconds)
        assert notes(capsys) == ["note: process 7 holds it for 33 s; end it"]
        with pytest.raises(NoAnswerError, match="process 7 holds it for 601 s; end it"):
            wait.check(601)
    log = (tmp_path / "train.log").read_text()
    assert log.count("] note: process 7 holds it for") == 2


@pytest.mark.parametrize(
    ("before", "seconds", "lines"), [(0, 1, 0), (0, 3, 1), (3, 31, 1), (31, 32, 1)]
)
def test_a_stop_names_once_what_was_waited_for(capsys, monkeypatch, before, seconds, lines):
    wait = Wait(silence)
    wait.check(before)
    monkeypatch.setattr(signals, "recorded_signals", [signal.SIGTERM])
    with pytest.raises(RunStopped):
        wait.check(seconds)
    assert len(notes(capsys)) == lines


def test_a_wait_that_others_share_is_not_stopped(capsys, monkeypatch):
    monkeypatch.setattr(signals, "recorded_signals", [signal.SIGTERM])
    wait = Wait(silence, stops=False)
    wait.check(3)
    assert not notes(capsys)
    with pytest.raises(NoAnswerError):
        wait.check(601)


@pytest.fixture
def look(tmp_path, monkeypatch):
    """Looks at files after a number of seconds."""
    signs, now = SignsOfLife(), [waits.time.monotonic()]
    monkeypatch.setattr(waits.time, "monotonic", lambda: now[0])

    def after(seconds, *names):
        now[0] += seconds
        path, silent = signs.longest_silent([tmp_path / name for name in names])
        return path.name, round(silent, 3)

    return after


def touch(path, modified):
    path.touch()
    waits.os.utime(path, (modified, modified))


def test_the_most_silent_process_is_named(look, tmp_path):
    """Whatever the clock of its machine says."""
    touch(tmp_path / "a", 9e9)
    touch(tmp_path / "b", 1e3)
    look(0, "a", "b")
    assert look(5, "a", "b")[1] == 5
    touch(tmp_path / "a", 8e9)
    assert look(5, "a", "b") == ("b", 10)
    touch(tmp_path / "b", 2e3)
    assert look(5, "a", "b") == ("a", 5)
    assert look(25, "a", "b")[1] == 0  # this process was stopped meanwhile
    assert look(4, "a", "b")[1] == 4


def test_a_process_that_is_gone_is_not_waited_for(look, tmp_path):
    touch(tmp_path / "a", 1e3)
    look(0, "a", "b")
    assert look(7, "a", "b") == ("a", 7)
    assert look(7, "b")[1] == 0
    (tmp_path / "a").unlink()
    assert look(7, "a", "b")[1] == 0
    assert look(7, "a", "b")[1] == 0
