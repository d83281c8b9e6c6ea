import pytest

from dml.core.errors import RunStopped
from dml.runs.drawing_guard import DrawingGuard
from tests.killed_process import die_at


@pytest.fixture
def guard(tmp_path):
    made = DrawingGuard(tmp_path / "state.txt")
    made.plan()
    return made


def kill(guard):
    from dml.core.fault_injection import fault_point

    guard.draw("figures", lambda: fault_point("drawing"))


def test_drawn_figures_are_not_pending(guard):
    drawn = []
    guard.draw("figures", lambda: drawn.append(1))
    assert drawn == [1]
    assert not guard.is_pending


def test_an_exception_is_a_note(guard, capsys):
    guard.draw("figures", lambda: 1 / 0)
    assert "note: figures cannot be drawn" in capsys.readouterr().out
    assert not guard.is_pending


@pytest.mark.parametrize("stop", [RunStopped("stopped", 143), KeyboardInterrupt()])
def test_after_a_stop_they_are_drawn_again(guard, stop):
    drawn = []

    def draw():
        raise stop

    with pytest.raises(type(stop)):
        guard.draw("figures", draw)
    assert guard.is_pending
    guard.draw("figures", lambda: drawn.append(1))
    assert drawn == [1]


def test_after_a_crash_they_are_left_out(guard, capsys):
    assert die_at("drawing", kill, guard) != 0
    guard.plan()  # as the next process does before it stores the result
    drawn = []
    guard.draw("figures", lambda: drawn.append(1))
    assert drawn == []
    assert "left out" in capsys.readouterr().out
    assert not guard.is_pending
