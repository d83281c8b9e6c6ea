"""Where a mistake belongs in the source, found by names, and the source with the mistake in it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from dml.core.errors import ConfigError, UserError
from scripts.mistakes.catalog import Mistake


def check_mistakes(mistakes: Iterable[Mistake], root: Path) -> None:
    """Checks that every mistake can be planted, and that its test files exist.

    Args:
        mistakes: to be planted.
        root: of a clone, or of a copy of its files.

    Raises:
        ConfigError: lists all that cannot.
    """
    problems = []
    for mistake in mistakes:
        for test in mistake.tests:
            if not (root / test).is_file():
                problems.append(f"{mistake.name}: there is no test file {test}")
        try:
            write_mistake(mistake, root)
        except UserError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError(problems)


def plant(mistake: Mistake, root: Path) -> Path:
    """Changes the module of a mistake in a copy of the repository; returns its path.

    Raises:
        UserError: its code is not there, or is there more than once.
    """
    path, text = write_mistake(mistake, root)
    path.write_text(text, encoding="utf-8")
    return path


def write_mistake(mistake: Mistake, root: Path) -> tuple[Path, str]:
    """Returns the path of the module of a mistake, and its text with the mistake.

    Raises:
        UserError: the definition does not exist, its code does not occur exactly once, or the
            mistake changes nothing or is no Python.
    """
    path, names = _find_module(mistake, root)
    text = path.read_text(encoding="utf-8")
    begin, end = _find_definition(mistake, text, names)
    pattern = r"\s+".join(re.escape(word) for word in mistake.code.split())
    matches = [*re.finditer(pattern, text[begin:end])]
    if len(matches) != 1:
        number = f"fits {len(matches)} times" if matches else "fits nowhere"
        raise UserError(
            f"{mistake.name}: its code {number} in {mistake.definition}; it must occur exactly once"
        )
    first, last = matches[0].span()
    changed = text[: begin + first] + mistake.mistake.strip("\n") + text[begin + last :]
    try:
        is_same = ast.dump(ast.parse(changed)) == ast.dump(ast.parse(text))
    except SyntaxError as error:
        raise UserError(f"{mistake.name}: {path.name} with the mistake: {error}") from error
    if is_same:
        raise UserError(f"{mistake.name}: the mistake changes nothing")
    return path, changed


def _find_module(mistake: Mistake, root: Path) -> tuple[Path, list[str]]:
    """Returns the file of the module in a full name, and the rest of the name."""
    parts = mistake.definition.split(".")
    for length in range(len(parts), 0, -1):
        module = root.joinpath(*parts[:length])
        for path in (module.with_suffix(".py"), module / "__init__.py"):
            if path.is_file():
                return path, parts[length:]
    raise UserError(f"{mistake.name}: there is no module for {mistake.definition}")


def _find_definition(mistake: Mistake, text: str, names: Sequence[str]) -> tuple[int, int]:
    """Returns begin and end of a definition in the text of its module."""
    if not names:
        return 0, len(text)
    body = ast.parse(text).body
    for name in names:
        matching = [node for node in body if name in _defined_names(node)]
        if len(matching) != 1:
            raise UserError(
                f"{mistake.name}: {mistake.definition} is defined {len(matching)} times; "
                "it must be a definition"
            )
        body = getattr(matching[0], "body", [])
    lines = text.splitlines(keepends=True)
    first, last = matching[0].lineno, matching[0].end_lineno
    assert last is not None  # it is None only for trees that are made by hand
    return len("".join(lines[: first - 1])), len("".join(lines[:last]))


def _defined_names(node: ast.stmt) -> list[str]:
    """Returns the names that a function, a class or an assignment defines; none of an overload."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        is_overload = "overload" in map(ast.unparse, node.decorator_list)
        return [] if is_overload else [node.name]
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]
