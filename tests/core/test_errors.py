"""Exceptions that would end the program without a word."""

import pytest

from dml.core.errors import RunStopped, UserError, refuse_exits


class Ended(BaseException):
    """An exception that no `except Exception` stops."""


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit(), Ended("two\nlines")])
def test_an_exit_of_own_code_is_one_line(error):
    with pytest.raises(UserError, match=type(error).__name__) as raised, refuse_exits():
        raise error
    assert "test_errors.py, line" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RunStopped("x", 75), ValueError()])
def test_others_pass(error):
    with pytest.raises(type(error)), refuse_exits():
        raise error
