"""Options of a config file with their values as written and their comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml  # type: ignore[import-untyped]

_COMMAND = re.compile(r"# ((?:python|tensorboard) \S.*?)(?:\s{2,}\S.*)?$")
_REMARK = re.compile(r"#\s{6,}\S")  # goes on below the one behind a command


@dataclass(frozen=True)
class WrittenOption:
    """One key of a config file.

    Attributes:
        name: dotted name, with the nodes above it.
        value: text behind the key; empty for a node with keys of its own.
        comment: text behind or above it, in one line; may be empty.
    """

    name: str
    value: str
    comment: str


@dataclass(frozen=True)
class Header:
    """Comment at the beginning of a config file.

    Attributes:
        commands: lines to type, `python train.py loss=mfcont`, without the remarks behind them.
        text: the rest, in one line.
    """

    commands: tuple[str, ...]
    text: str


def read_header(path: Path) -> Header:
    """Returns the comment at the beginning of a config file."""
    commands: list[str] = []
    words: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        if command := _COMMAND.match(line):
            commands.append(command[1])
        elif commands and commands[-1].endswith("\\"):
            commands[-1] = commands[-1].removesuffix("\\") + line.lstrip("# ")
        elif not line.startswith("# @package") and not _REMARK.match(line):
            words.append(line.lstrip("# "))
    return Header(tuple(commands), " ".join(word for word in words if word))


@cache
def read_options(path: Path) -> tuple[WrittenOption, ...]:
    """Returns the options of a config file in order, the nodes among them.

    The comment of an option is the one behind its value, with the comments below it in the same
    column, or else the comments on the lines above it.
    """
    text = path.read_text(encoding="utf-8")
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(node, yaml.MappingNode):
        return ()
    return tuple(_walk(node, "", text, text.splitlines()))


def _walk(
    node: yaml.MappingNode, prefix: str, text: str, lines: list[str]
) -> Iterator[WrittenOption]:
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        nested = isinstance(value, yaml.MappingNode) and not value.flow_style
        written = "" if nested else text[value.start_mark.index : value.end_mark.index].strip()
        end = key.end_mark if nested else value.end_mark
        comment = _comment_behind(lines, end.line, end.column) or _comment_above(
            lines, key.start_mark.line
        )
        yield WrittenOption(name, written, comment)
        if nested:
            yield from _walk(value, f"{name}.", text, lines)


def _comment_behind(lines: list[str], line: int, column: int) -> str:
    """Returns the comment behind a value, with the comments below it in the same column.

    Raises:
        ValueError: a comment below begins in another column, right of the key.
    """
    if line >= len(lines) or not (found := re.search(r"\s# ?(.*)$", lines[line][column:])):
        return ""
    place = column + found.start() + 1  # of the #
    words = [found[1]]
    indent = len(lines[line]) - len(lines[line].lstrip())
    for below in lines[line + 1 :]:
        if not below.strip().startswith("#") or below.index("#") <= indent:
            break
        if below.index("#") != place:
            raise ValueError(f"the comment goes on in another column: {lines[line].strip()}")
        words.append(below.strip().lstrip("# "))
    return " ".join(words)


def _comment_above(lines: list[str], line: int) -> str:
    indent = len(lines[line]) - len(lines[line].lstrip())
    words: list[str] = []
    for above in reversed(lines[:line]):
        if not (above.strip().startswith("#") and above.index("#") == indent > 0):
            break
        words.insert(0, above.strip().lstrip("# "))
    return " ".join(words)
