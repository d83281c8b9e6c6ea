"""YAML files of others: plain values only, whatever the file holds.

A few aliases can stand for gigabytes, a number of 4 MB takes hours, libyaml crashes at thousands of
levels, a named pipe never ends, and `${oc.env:…}` reads the environment of this machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from dml.config.identity import refuse_interpolation
from dml.core.errors import first_line
from dml.core.regular_files import is_shell_pipe, read_regular

MAX_BYTES = 4_000_000  # a config has ten thousand
MAX_LEVELS = 30
MAX_DIGITS = 400  # of a number; a float has 17
TIMESTAMP, FLOAT = "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:float"
INT = "tag:yaml.org,2002:int"
PLAIN = str | int | float | bool | None


class _Loader(yaml.CSafeLoader):
    """Reads numbers and dates as OmegaConf does: `1e-5` is a number, `2024-01-01` a text.

    Numbers in base 60 (`1:30`) are refused: their digits take quadratic time.
    """

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Returns a number.

        Raises:
            ValueError: it is in base 60, or too long.
        """
        if ":" in node.value or len(node.value) > MAX_DIGITS:
            line = node.start_mark.line + 1
            raise ValueError(f"line {line}: '{node.value[:20]}' is not read as a number; quote it")
        if node.tag == INT:
            return int(self.construct_yaml_int(node))
        return float(self.construct_yaml_float(node))


_Loader.yaml_implicit_resolvers = {
    first: [rule for rule in rules if rule[0] != TIMESTAMP]
    for first, rules in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    FLOAT,
    re.compile(r"[-+]?(\d[\d_]*(\.[\d_]*)?|\.[\d_]+)[eE][-+]?\d+\Z"),
    list("-+.0123456789"),
)
_Loader.add_constructor(INT, _Loader.construct_number)
_Loader.add_constructor(FLOAT, _Loader.construct_number)


def read_plain_yaml(path: Path, typed: bool = False) -> dict[str, Any]:
    """Returns the content of a file as nested dictionaries and lists of plain values.

    Args:
        path: of the file.
        typed: the command line names it: a pipe of the shell (`<(…)`) is read too.

    Raises:
        ValueError: it cannot be read, or holds `${`, an alias, an object, or too much.
    """
    try:
        content = _parse(_read(path, typed))
        if not isinstance(content, dict):
            raise ValueError("not a table of options")
        for name, value in _walk(content, ""):
            if not isinstance(value, PLAIN):
                raise ValueError(f"{name} is a {type(value).__name__}, not a plain value")
        refuse_interpolation(content)
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error
    return content


def _read(path: Path, typed: bool) -> bytes:
    if typed and is_shell_pipe(path):
        return read_regular(path, typed=True)
    if not path.is_file():
        raise ValueError("it is no file" if path.exists() else "there is no such file")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ValueError(f"{size:,} bytes are too many for a table of options")
    return read_regular(path)


def _parse(text: bytes) -> Any:
    level = 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        level += isinstance(event, yaml.CollectionStartEvent)
        level -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or level > MAX_LEVELS:
            raise ValueError(f"line {event.start_mark.line + 1} has no plain value")
    try:
        return yaml.load(text, _Loader)
    except (IndexError, KeyError, AttributeError, ArithmeticError) as error:  # such as !!bool x
        raise ValueError(f"a value is not of its tag: {first_line(error)}") from error


def _walk(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yields the names and values of all leaves of nested dictionaries and lists, and their keys.

    A key that is no plain value is a leaf.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{name}.{key}".removeprefix("."), key
            yield from _walk(inner, f"{name}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _walk(inner, f"{name}[{number}]")
    else:
        yield name.removeprefix("."), value
