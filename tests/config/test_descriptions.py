from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from dml.config.descriptions import describe_type, describe_value


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (int, "a whole number"),
        (float | None, "a number or null"),
        (Annotated[float, "any"] | None, "a number or null"),
        (str | Path, "text"),
        (list[int] | None, "a list of whole numbers or null"),
        (tuple[float, float], "a list of numbers"),
        (list, "a list"),
        (dict[str, Any], "a node of options"),
        (Literal["a", "b"], "one of a | b"),
        (object, ""),
    ],
)
def test_type(kind, words):
    assert describe_type(kind) == words


@pytest.mark.parametrize(
    ("value", "words"), [(None, "null"), (True, "true"), ("a", "'a'"), (3.5, "3.5"), ([1], "[1]")]
)
def test_value(value, words):
    assert describe_value(value) == words
