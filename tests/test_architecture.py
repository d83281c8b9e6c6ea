"""Rules for the repository: where tests are, and paths in documents."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_tests_mirror_the_source():
    """`tests/a/b/` tests `dml/a/b/`; `scripts`, `studies` and `configs` have theirs beside them.

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
        r"`((?:dml|configs|scripts|studies|tests|docs)/[\w./<>-]*)", (ROOT / page).read_text()
    )
    patterns = {path: re.sub("<[^>]*>", "*", path).strip("/.") for path in paths}
    assert not [path for path, pattern in patterns.items() if not any(ROOT.glob(pattern))]


def test_every_long_test_is_in_a_part_of_make_soak():
    parts = re.findall(r"^soak-\w+: SOAK_TESTS := (.+)$", _text("Makefile"), flags=re.MULTILINE)
    folders = " ".join(parts).split()
    assert len(folders) == len(set(folders)) > 4
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        if "mark.soak" in path.read_text(encoding="utf-8"):
            folder = path.relative_to(ROOT).parts[:2]
            assert path == Path(__file__) or "/".join(folder) in folders, path


def test_no_condition_stands_inside_a_string():
    """Such a string is read twice: the condition gets a name before it."""
    lines = []
    for folder in ("dml", "scripts", "studies"):
        for path in sorted(ROOT.glob(f"{folder}/**/*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for string in ast.walk(tree):
                if isinstance(string, ast.JoinedStr):
                    conditions = [n for n in ast.walk(string) if isinstance(n, ast.IfExp)]
                    lines += [f"{path}:{condition.lineno}" for condition in conditions]
    assert not lines


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_all_commands_use_the_parser_that_shows_control_characters():
    others = {ROOT / "dml/cli/parser.py", ROOT / "dml/cli/completion.py"}  # the latter prints none
    files = [*ROOT.glob("*.py")]
    for folder in ("dml", "scripts", "studies"):
        files += ROOT.glob(f"{folder}/**/*.py")
    makes_parser = re.compile(r"\bArgumentParser\(")
    for path in set(files) - others:
        assert not makes_parser.search(path.read_text("utf-8")), path


def test_runs_have_a_typed_config():
    """Hydra's config ends at `check`; what other packages read of it are plain values."""
    for path in sorted(ROOT.glob("dml/*/**/*.py")):
        package = path.relative_to(ROOT / "dml").parts[0]
        if package not in ("config", "cli"):
            assert "DictConfig" not in path.read_text(encoding="utf-8"), path
