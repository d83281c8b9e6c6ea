"""Sections and arguments of a docstring."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass

_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Example):$", re.M)
_ARGUMENT = re.compile(r"^ {4}(\w[\w, ]*): (.*(?:\n {5,}.*)*)", re.M)


@dataclass(frozen=True)
class Docstring:
    """A docstring in parts.

    Attributes:
        text: everything above the first section.
        arguments: meaning of each argument, in one line.
        sections: text of each section by its title, in the order of the docstring.
    """

    text: str
    arguments: dict[str, str]
    sections: dict[str, str]


def read_docstring(target: object) -> Docstring:
    """Returns the docstring of a class or function."""
    text, *sections = _SECTION.split(inspect.getdoc(target) or "")
    parts = dict(zip(sections[::2], sections[1::2], strict=True))
    plain = {title: textwrap.dedent(part).strip() for title, part in parts.items()}
    arguments: dict[str, str] = {}
    for names, meaning in _ARGUMENT.findall(parts.get("Args", "")):
        for name in names.split(", "):
            arguments[name] = " ".join(meaning.split())
    return Docstring(text.strip(), arguments, plain)
