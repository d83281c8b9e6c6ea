"""The mistakes of all rooms, from the YAML files of this folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from dml.core.errors import ConfigError, nearest

CATALOG = Path(__file__).parent
_TYPES = {
    "name": str,
    "wrong": str,
    "definition": str,
    "code": str,
    "mistake": str,
    "tests": list,
    "small": bool,
}
_OPTIONAL = {"small"}


@dataclass(frozen=True)
class Mistake:
    """A change of the source that makes results wrong.

    Attributes:
        name: unique.
        room: name of the file that lists it.
        wrong: what a user would get wrong.
        definition: full name of the function, class, method, constant or module.
        code: piece of its source, which occurs once.
        mistake: replacement of this piece.
        tests: files that must find it, the nearest first.
        small: whether it changes a number of a table by less than 3 % without an error.
    """

    name: str
    room: str
    wrong: str
    definition: str
    code: str
    mistake: str
    tests: tuple[str, ...]
    small: bool = False


def list_rooms(folder: Path = CATALOG) -> list[str]:
    """Returns the names of all rooms."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_mistakes(folder: Path = CATALOG) -> list[Mistake]:
    """Returns all mistakes, room by room.

    Raises:
        ConfigError: a file is no YAML, or entries lack a key, have an unknown one or a value of
            another type, or share a name.
    """
    mistakes: list[Mistake] = []
    problems: list[str] = []
    for room in list_rooms(folder):
        try:
            entries = yaml.safe_load((folder / f"{room}.yaml").read_text("utf-8"))
        except yaml.YAMLError as error:
            problems.append(f"{room}.yaml: {' '.join(str(error).split())}")
            continue
        for number, entry in enumerate(entries):
            wrong = [*_problems(entry, f"{room}.yaml: entry {number + 1}")]
            problems += wrong
            if not wrong:
                tests = tuple(entry["tests"])
                mistakes.append(Mistake(**{**entry, "room": room, "tests": tests}))
    counts = Counter(mistake.name for mistake in mistakes)
    problems += [f"{name}: {number} mistakes" for name, number in counts.items() if number > 1]
    if problems:
        raise ConfigError(problems)
    return mistakes


def _problems(entry: dict[str, Any], where: str) -> Iterator[str]:
    for key in entry.keys() - _TYPES:
        yield f"{where}: {key} is no key of a mistake{nearest(key, _TYPES)}"
    for key, kind in _TYPES.items():
        if key not in entry:
            if key not in _OPTIONAL:
                yield f"{where}: {key} is missing"
        elif not isinstance(entry[key], kind):
            yield f"{where}: {key} must be of type {kind.__name__}, got {entry[key]!r}"
    if not entry.get("tests"):
        yield f"{where}: tests must name the test file that finds it"


def choose(
    mistakes: Sequence[Mistake], room: str | None = None, names: Sequence[str] = ()
) -> list[Mistake]:
    """Returns the mistakes of a room, or those with some names; all by default.

    Raises:
        ConfigError: a room or a name does not exist.
    """
    by_name = {mistake.name: mistake for mistake in mistakes}
    rooms = sorted({mistake.room for mistake in mistakes})
    problems = list[str]()
    if room is not None and room not in rooms:
        problems.append(f"--room: no '{room}'{nearest(room, rooms)}; {', '.join(rooms)}")
    for name in names:
        if name not in by_name:
            problems.append(f"--only: no mistake '{name}'{nearest(name, by_name)}")
    if problems:
        raise ConfigError(problems)
    chosen = mistakes
    if names:
        chosen = [by_name[name] for name in names]
    if room is not None:
        chosen = [mistake for mistake in chosen if mistake.room == room]
    return list(chosen)
