"""Docstrings have their sections side by side, and their examples give what they say."""

import ast
import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch

import dml.losses
from dml import retrieval

ROOT = Path(__file__).resolve().parents[2]
NESTED = re.compile(r"^ +(Args|Attributes|Returns|Yields|Raises|Shapes|Example):", re.M)
FOLDERS = ("dml", "scripts", "studies")
FILES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def docstrings(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield getattr(node, "name", path.stem), ast.get_docstring(node) or ""


def test_no_section_is_nested_in_another():
    """A heading that is indented belongs to the section above: tools show it as its text."""
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in FILES
        for name, text in docstrings(path)
        if NESTED.search(text)
    ]
    assert found == []


EXAMPLES = [
    *(getattr(dml.losses, name) for name in dml.losses.__all__),
    retrieval.retrieval_metrics,
]


@pytest.mark.parametrize("described", EXAMPLES, ids=lambda one: one.__name__)
def test_the_example_gives_what_it_says(described):
    module = importlib.import_module(described.__module__)
    text = inspect.getdoc(described)
    test = doctest.DocTestParser().get_doctest(
        text, {"torch": torch, **vars(module)}, described.__name__, module.__file__, 0
    )
    assert test.examples
    assert doctest.DocTestRunner().run(test).failed == 0
