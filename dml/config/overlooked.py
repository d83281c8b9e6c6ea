"""What Hydra would pass over in a command: search paths that lead nowhere, grids without a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

SEARCHPATH = "hydra.searchpath"


def overlooked(words: Sequence[str]) -> list[str]:
    """What Hydra would pass over: search paths that lead nowhere, grids without a run."""
    given = [word for word in words if "=" in word and word[:1] not in ("-", "~")]
    return [problem for word in given for problem in (*_unreachable(word), *_valueless(word))]


def _valueless(word: str) -> Iterator[str]:
    with suppress(HydraException):  # told when Hydra meets it
        override = OverridesParser.create().parse_override(word)
        if not alternatives(override, word):
            name, _, value = word.partition("=")
            yield f"{name}: {value} holds no value, so the grid has no run"


def _unreachable(word: str) -> Iterator[str]:
    """What is wrong with `hydra.searchpath=[file://<folder>, pkg://<package>]`."""
    if not word.startswith(f"{SEARCHPATH}="):
        return
    value: Any = None
    with suppress(HydraException):
        value = OverridesParser.create().parse_override(word).value()
    if not isinstance(value, list):
        yield f"{SEARCHPATH}: {word.partition('=')[2]} is no list; write [file://<folder>]"
        return
    for place in value:
        parts = urlsplit(str(place))
        if parts.scheme not in ("file", "pkg", ""):
            yield f"{SEARCHPATH}: {place} is neither file://<folder> nor pkg://<package>"
        elif parts.scheme != "pkg" and not Path(str(place).removeprefix("file://")).is_dir():
            yield f"{SEARCHPATH}: {place} is no folder"


def alternatives(override: Override, word: str) -> list[str]:
    """A sweep's values one by one; `word` itself if it is no sweep."""
    if not override.is_sweep_override() or not override.is_discrete_sweep():
        return [word]
    key = word.partition("=")[0]
    return [f"{key}={value}" for value in override.sweep_string_iterator()]
