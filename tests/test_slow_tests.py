"""The list of slow tests names tests that exist."""

import ast
from functools import cache
from pathlib import Path

from tests.conftest import SLOW_TESTS

ROOT = Path(__file__).resolve().parents[1]
NAMES = SLOW_TESTS.read_text(encoding="utf-8").split()


@cache
def functions_of(file):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_name_is_that_of_a_test():
    for name in NAMES:
        file, *_, function = name.split("::")
        assert function in functions_of(file), name


def test_names_are_sorted_and_different():
    assert sorted(set(NAMES)) == NAMES
