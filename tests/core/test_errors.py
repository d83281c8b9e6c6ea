"""Exceptions that would end the program without a word."""

import pytest

from dml.core.errors import (
    RunStopped,
    UserError,
    first_line,
    is_out_of_memory,
    refuse_exits,
)


class Ended(BaseException):
    """An exception that no `except Exception` stops."""


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit(), Ended("two\nlines")])
def test_an_exit_of_own_code_is_one_line(error):
    with pytest.raises(UserError, match=type(error).__name__) as raised, refuse_exits():
        raise error
    assert "test_errors.py, line" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("could not create a primitive"), True),
        (ValueError("array could not be made C-contiguous"), True),
        (ValueError("not enough images"), False),
        (KeyError("out of memory"), False),
    ],
)
def test_a_lack_of_memory_is_known_by_its_message(error, expected):
    assert is_out_of_memory(error) == expected


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RunStopped("x", 75), ValueError()])
def test_others_pass(error):
    with pytest.raises(type(error)), refuse_exits():
        raise error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FileNotFoundError(2, "No such file or directory", "x"), "No such file or directory: 'x'"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("cannot identify image file"), "cannot identify image file"),
        (ValueError("[Errno 2] of another\nand more"), "[Errno 2] of another"),
        (ValueError(), "ValueError"),
    ],
)
def test_the_first_line_has_no_number_of_a_system_error(error, line):
    assert first_line(error) == line
