"""Rules for the repository: its weight, where tests are, and paths in documents."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Lines of code: without blanks, comments and docstrings. A change may lower them, not raise them.
CEILINGS = {"dml": 13_810, "dml/config": 1_000, "dml/data": 1_700, "dml/results": 1_600,
            "dml/runs": 2_300, "scripts": 4_500, "tests": 13_000}  # fmt: skip
CONFIGS = 168  # files
NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
           tokenize.ENDMARKER)  # fmt: skip


def count_lines(path: Path) -> int:
    text = path.read_text(encoding="utf-8")
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            lines.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


@pytest.mark.parametrize("folder", CEILINGS)
def test_code_stays_below_its_ceiling(folder):
    total = sum(map(count_lines, (ROOT / folder).rglob("*.py")))
    assert total <= CEILINGS[folder]


def test_there_are_not_more_config_files():
    assert len(list((ROOT / "configs").rglob("*.yaml"))) <= CONFIGS


def test_tests_mirror_the_source():
    """`tests/a/b/` tests `dml/a/b/`, `tests/scripts/` and `tests/configs/` their folders.

    Tests of whole commands are in `tests/system/`, and those of what a GPU would refuse or wait for
    in `tests/pretended_cuda/`.
    """
    places = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*")}
    own = {"system", "pretended_cuda", "docs"}
    assert not [
        place
        for place in places
        if place.parts and place.parts[0] not in own and "__pycache__" not in place.parts
        if not any((ROOT / home / place).is_dir() for home in ("dml", "."))
    ]


@pytest.mark.parametrize(
    "page", ["docs/architecture.md", "docs/python.md", "README.md", "CONTRIBUTING.md"]
)
def test_paths_in_the_documents_exist(page):
    """A part in angle brackets stands for the names of several files."""
    paths = re.findall(
        r"`((?:dml|configs|scripts|tests|docs)/[\w./<>-]*)", (ROOT / page).read_text()
    )
    patterns = {path: re.sub("<[^>]*>", "*", path).strip("/.") for path in paths}
    assert not [path for path, pattern in patterns.items() if not any(ROOT.glob(pattern))]
