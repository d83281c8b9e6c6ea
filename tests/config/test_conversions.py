"""Values of options are converted as OmegaConf converts them."""

import math
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from dml.config.conversions import Boolean, Float, Integer, Text
from dml.config.fields import CacheSize, Compile, Workers

REFUSED = object()
LARGE = 10**30
NOT_NUMBERS = ["abc", "", "0x10", "true", "null", None, True, False, [], [1], {}, {"a": 1}, b"3"]
NOT_INTEGERS = [*NOT_NUMBERS, "3.0", "1e3", 3.0, 3.5, 1e20, math.inf, math.nan, "nan", "inf"]
INTEGERS = {"3": 3, " 3 ": 3, "+3": 3, "-1": -1, "1_000": 1000, 0: 0, -1: -1, LARGE: LARGE}

TABLE: list[tuple[Any, Any, Any]] = [
    *((Integer, value, result) for value, result in INTEGERS.items()),
    *((Integer, value, REFUSED) for value in NOT_INTEGERS),
    *((Float, value, float(result)) for value, result in INTEGERS.items()),
    *((Float, value, float(value)) for value in ("3.5", "1e-3", "inf", 3.5, 1e20, math.inf)),
    *((Float, value, REFUSED) for value in NOT_NUMBERS),
    *((Boolean, value, True) for value in (True, 1, 2, -1, "1", "3", "true", "True", "yes", "on")),
    *((Boolean, value, True) for value in ("y", "Y", "ON")),
    *((Boolean, value, False) for value in (False, 0, "0", "false", "no", "off", "n")),
    *(
        (Boolean, value, REFUSED)
        for value in (1.0, "1.0", "t", "f", "", "abc", None, [], {}, "null")
    ),
    *((Text, value, value) for value in ("abc", "", " a ", "true", "null", "3")),
    *((Text, value, str(value)) for value in (3, -1, 3.5, 1e20, math.inf)),
    # OmegaConf makes text of booleans: `outputs=true` would be a folder named True
    *((Text, value, REFUSED) for value in (True, False, None, [], ["a"], {}, b"a")),
    (Integer | None, None, None),
    (Integer | None, "3", 3),
    (Integer | None, "null", REFUSED),
    (Float | None, None, None),
    (Float | None, True, REFUSED),
    (Text | None, None, None),
    (Text | None, 3, "3"),
    (CacheSize, None, None),  # no conversions between alternatives
    (CacheSize, 3, 3),
    (CacheSize, "full", "full"),
    (CacheSize, 3.0, REFUSED),
    (CacheSize, True, REFUSED),
    *((Compile, value, True) for value in (True, "true", "on", 1)),
    *((Compile, value, False) for value in (False, "no", "0")),
    (Compile, "reduce-overhead", "reduce-overhead"),
    *((Compile, value, REFUSED) for value in (2.0, None, "", "default", "reduce_overhead")),
    (Workers, "auto", "auto"),
    *((Workers, value, 3) for value in (3, "3")),
    *((Workers, value, REFUSED) for value in (-1, 1025, 3.0, True, None, "many", "")),
    (list[Float], [1, "2", 2.5], [1.0, 2.0, 2.5]),
    (list[Float], [], []),
    *((list[Float], value, REFUSED) for value in (3, "3", "[1]", None, {}, [True], [None], [[1]])),
    (list[Integer] | None, None, None),
    (list[Integer] | None, ["3", 4], [3, 4]),
    (list[Integer] | None, [3.5], REFUSED),
    (list[Text], ["a", 3, 1.5], ["a", "3", "1.5"]),
    (list[Text], [None], REFUSED),
    (dict[str, Any], {"a": {"b": [1, None]}}, {"a": {"b": [1, None]}}),
    *((dict[str, Any], value, REFUSED) for value in (None, 3, "a", [], {1: 2}, {True: 1})),
    (dict[str, Any] | None, None, None),
]


def convert(kind, value):
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return REFUSED


@pytest.mark.parametrize(("kind", "value", "result"), TABLE)
def test_conversion(kind, value, result):
    found = convert(kind, value)
    assert found == result
    assert type(found) is type(result)


def test_nan_is_a_float():
    assert math.isnan(convert(Float, "nan"))
    assert math.isnan(convert(Float, math.nan))
