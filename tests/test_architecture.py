"""Rules for the layout of the repository: imports, sizes, names, and where tests are."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hydra.utils import get_object
from omegaconf import OmegaConf

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted((ROOT / "dml").rglob("*.py"))
MOST_PARAMETERS = 8
QUESTION_WORDS = {"What", "Which", "How", "Whether", "From", "Where", "Why"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def repeated(places: dict[str, list[str]]) -> list[str]:
    return [f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1]


def assert_empty(problems: Iterable[str]) -> None:
    lines = sorted(problems)
    assert not lines, "\n" + "\n".join(lines)


def test_the_package_has_at_most_14_entries():
    entries = [path.name for path in (ROOT / "dml").iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 14, sorted(entries)


class TestImports:
    """The import contract, checked by import-linter on a copy of the package."""

    def check(self, home: Path) -> tuple[int, str]:
        code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=home, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    def test_packages_of_one_floor_are_independent(self):
        settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
        for contract in settings["contracts"]:
            assert contract["type"] == "layers"
            assert not contract.get("ignore_imports")
            for layer in contract["layers"]:
                assert ":" not in layer  # a colon would let the packages import each other

    def test_every_package_has_a_floor(self):
        settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
        (contract,) = settings["contracts"]
        floors = {name.strip() for layer in contract["layers"] for name in layer.split("|")}
        entries = {path.stem for path in (ROOT / "dml").iterdir() if path.name[0] not in "_."}
        assert floors == entries - {"py"}  # py.typed

    def test_the_contract_is_kept_and_forbidden_imports_are_seen(self, tmp_path):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "dml", tmp_path / "dml", ignore=ignored)
        shutil.copy(ROOT / "pyproject.toml", tmp_path)
        status, report = self.check(tmp_path)
        assert status == 0, report
        planted = {
            "losses": "import dml.runs.experiment",
            "core": "import dml.losses",
            "data": "def late():\n    from dml.models import small_cnn",  # of the same floor
        }
        for floor, code in planted.items():
            (tmp_path / "dml" / floor / "planted.py").write_text(f"{code}\n")
        status, report = self.check(tmp_path)
        assert status != 0
        for floor in planted:
            assert f"dml.{floor}.planted -> dml." in report, report


class TestSizes:
    def test_no_function_takes_too_many_parameters(self):
        """Hyperparameters apart: constructors and functions that a config names by `_target_`.

        The base classes of those share their hyperparameters. Dataclasses are records with a name
        for each value; their fields are not counted.
        """
        free = set(targets())
        found = []
        for path in MODULES:
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for name, function in functions(tree_of(path)):
                arguments = function.args
                names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)]
                names = [one for one in names if one not in ("self", "cls")]
                count = len(names) + len(arguments.kwonlyargs)
                if count > MOST_PARAMETERS and f"{module}.{name}" not in free:
                    found.append(f"{module}.{name}: {count}")
        assert_empty(found)


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Yields the functions of a module, and the methods of its classes, by dotted name."""

    def walk(node: ast.AST, path: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield f"{path}{child.name}", child
            if isinstance(child, Function | ast.ClassDef):
                yield from walk(child, f"{path}{child.name}.")
            else:
                yield from walk(child, path)

    return walk(tree, "")


def targets() -> Iterator[str]:
    """Yields functions, and constructors with those of their base classes, named by configs."""
    # The one class whose options a config lists without its name: configs/embedder/default.yaml.
    yield "dml.models.embedder.Embedder.__init__"
    for file in (ROOT / "configs").rglob("*.yaml"):
        for name in _target_names(OmegaConf.to_container(OmegaConf.load(file))):
            if not name.startswith("dml."):
                continue
            target = get_object(name)
            if isinstance(target, type):
                yield from (f"{one.__module__}.{one.__qualname__}.__init__" for one in target.mro())
            else:
                yield f"{target.__module__}.{target.__qualname__}"


def _target_names(node: object) -> Iterator[str]:
    for key, value in node.items() if isinstance(node, dict) else ():
        if key == "_target_" and isinstance(value, str):
            yield value
        yield from _target_names(value)


class TestNames:
    def test_docstrings_begin_with_the_object_or_a_verb(self):
        found = []
        for path in MODULES:
            tree = tree_of(path)
            nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef | Function)]
            for node in (tree, *nodes):
                words = (ast.get_docstring(node) or " ").split(maxsplit=1)
                if words and words[0].rstrip(",:") in QUESTION_WORDS:
                    found.append(f"{name_of(path)}: {getattr(node, 'name', 'module')}")
        assert_empty(found)

    def test_no_two_modules_share_a_name(self):
        places = defaultdict(list)
        for path in MODULES:
            if path.name != "__init__.py":
                places[path.name].append(name_of(path))
        assert_empty(repeated(places))

    def test_no_two_public_classes_share_a_name(self):
        places = defaultdict(list)
        for path in MODULES:
            for node in tree_of(path).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(name_of(path))
        assert_empty(repeated(places))


def test_tests_mirror_the_source():
    """`tests/a/b/test_c.py` tests `dml/a/b/c.py`, or the package `dml/a/b/c/`.

    `tests/scripts/` and `tests/configs/` mirror their folders in the same way. Tests that belong to
    no module are in `tests/system/`, of whole commands, and in `tests/pretended_cuda/`, of what a
    GPU would refuse or wait for.
    """
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT / "tests")
        if place.parts[0] in ("system", "pretended_cuda") or path == Path(__file__).resolve():
            continue
        source = place.with_name(place.name.removeprefix("test_")).with_suffix("")
        candidates = [ROOT / "dml" / source, ROOT / source]
        if not any(one.with_suffix(".py").is_file() or one.is_dir() for one in candidates):
            found.append(str(place))
    assert_empty(found)


@pytest.mark.parametrize(
    "page", ["docs/architecture.md", "docs/python.md", "README.md", "CONTRIBUTING.md"]
)
def test_paths_in_the_documents_exist(page):
    """A part in angle brackets stands for the names of several files."""
    paths = re.findall(
        r"`((?:dml|configs|scripts|tests|docs)/[\w./<>-]*)", (ROOT / page).read_text()
    )
    patterns = {path: re.sub("<[^>]*>", "*", path).strip("/.") for path in paths}
    assert_empty(path for path, pattern in patterns.items() if not any(ROOT.glob(pattern)))
