"""Values of options are converted as OmegaConf converts them."""

import math
from typing import Any

import pytest
from omegaconf.errors import OmegaConfBaseException

from dml.config.check import _converted

REFUSED = object()
LARGE = 10**30
NOT_NUMBERS = ["abc", "", "0x10", "true", "null", None, True, False, [], [1], {}, {"a": 1}, b"3"]
NOT_INTEGERS = [*NOT_NUMBERS, "3.0", "1e3", 3.0, 3.5, 1e20, math.inf, math.nan, "nan", "inf"]
INTEGERS = {"3": 3, " 3 ": 3, "+3": 3, "-1": -1, "1_000": 1000, 0: 0, -1: -1, LARGE: LARGE}

TABLE: list[tuple[Any, Any, Any]] = [
    *((int, value, result) for value, result in INTEGERS.items()),
    *((int, value, REFUSED) for value in NOT_INTEGERS),
    *((float, value, float(result)) for value, result in INTEGERS.items()),
    *((float, value, float(value)) for value in ("3.5", "1e-3", "inf", 3.5, 1e20, math.inf)),
    *((float, value, REFUSED) for value in NOT_NUMBERS),
    *((bool, value, True) for value in (True, 1, 2, -1, "1", "3", "true", "True", "yes", "on")),
    *((bool, value, True) for value in ("y", "Y", "ON")),
    *((bool, value, False) for value in (False, 0, "0", "false", "no", "off", "n")),
    *((bool, value, REFUSED) for value in (1.0, "1.0", "t", "f", "", "abc", None, [], {}, "null")),
    *((str, value, value) for value in ("abc", "", " a ", "true", "null", "3")),
    *((str, value, str(value)) for value in (3, -1, 3.5, 1e20, math.inf, True)),
    *((str, value, REFUSED) for value in (None, [], ["a"], {}, b"a")),
    (int | None, None, None),
    (int | None, "3", 3),
    (int | None, "null", REFUSED),
    (float | None, None, None),
    (float | None, True, REFUSED),
    (str | None, None, None),
    (str | None, 3, "3"),
    (int | str | None, None, None),  # no conversions between alternatives
    (int | str | None, 3, 3),
    (int | str | None, "3", "3"),
    (int | str | None, 3.0, REFUSED),
    (int | str | None, True, REFUSED),
    (list[float], [1, "2", 2.5], [1.0, 2.0, 2.5]),
    (list[float], [], []),
    *((list[float], value, REFUSED) for value in (3, "3", "[1]", None, {}, [True], [None], [[1]])),
    (list[int] | None, None, None),
    (list[int] | None, ["3", 4], [3, 4]),
    (list[int] | None, [3.5], REFUSED),
    (list[str], ["a", 3, 1.5], ["a", "3", "1.5"]),
    (list[str], [None], REFUSED),
    (dict[str, Any], {"a": {"b": [1, None]}}, {"a": {"b": [1, None]}}),
    *((dict[str, Any], value, REFUSED) for value in (None, 3, "a", [], {1: 2}, {True: 1})),
    (dict[str, Any] | None, None, None),
]


def convert(kind, value):
    try:
        return _converted(value, kind)
    except OmegaConfBaseException:
        return REFUSED


@pytest.mark.parametrize(("kind", "value", "result"), TABLE)
def test_conversion(kind, value, result):
    found = convert(kind, value)
    assert found == result
    assert type(found) is type(result)


def test_nan_is_a_float():
    assert math.isnan(convert(float, "nan"))
    assert math.isnan(convert(float, math.nan))
