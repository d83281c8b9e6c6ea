"""Lines of outcomes: what was tried, the result and what to do, at any width and for an issue."""

import pytest

from dml.cli.machine.outcome import Check, Outcome, describe, describe_for_issue, perform
from dml.core.errors import RunStopped


def check_that(run):
    return Check("locks", "a lock of two processes", run, "choose another disk")


def raises(error):
    def run():
        raise error

    return run


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome("x"), "ok"),
        (Outcome("x", "do y", works=False), "FAILED"),
        (Outcome("x", "do y", works=False, is_needed=False), "note"),
        (Outcome("x", "do y", is_needed=False), "ok"),
    ],
)
def test_states(outcome, state):
    assert outcome.state == state


def test_an_exception_is_a_failure_with_the_remedy_of_the_check():
    outcome = perform(check_that(raises(RuntimeError("CUDA error: no kernel\nmore lines"))))
    assert outcome == Outcome("CUDA error: no kernel", "choose another disk", works=False)


@pytest.mark.parametrize("stop", [RunStopped("stopped by SIGTERM", 143), KeyboardInterrupt()])
def test_a_stop_is_no_failure(stop):
    with pytest.raises(type(stop)):
        perform(check_that(raises(stop)))


@pytest.mark.parametrize("width", [20, 30, 49, 50, 80, 100])
def test_lines_fit_the_terminal_and_lose_no_word(width):
    check = check_that(None)
    outcome = Outcome(
        "two processes hold one lock at once", "choose a disk with locks", works=False
    )
    text = "\n".join(describe(check, outcome, width))
    assert max(map(len, text.splitlines())) <= max(width, 25)
    words = "FAILED locks a lock of two processes: two processes hold one lock at once"
    assert text.split() == f"{words} to do: choose a disk with locks".split()


def test_what_works_needs_no_advice():
    (line,) = describe(check_that(None), Outcome("x", "do y"), 100)
    assert line == "ok      locks       a lock of two processes: x"


def test_a_block_for_an_issue_is_one_block_of_code():
    outcome = Outcome("a `name`\nof \x1b[31mtwo lines", works=False)
    lines = [*describe_for_issue(["revision 1"], [(check_that(None), outcome)])]
    assert lines == [
        "```",
        "revision 1",
        "FAILED  locks: a 'name'\\nof \\x1b[31mtwo lines",
        "```",
    ]
