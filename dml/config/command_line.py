"""The words of a command line before Hydra sees them: flags come first, mistakes are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from dml.core.errors import ConfigError, nearest

if TYPE_CHECKING:  # Hydra's parser takes long to import, and worker processes do without it
    from hydra.core.override_parser.types import Override

FLAGS = ("--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun",
         "-m", "--shell-completion", "-sc")  # fmt: skip
FLAGS_WITH_VALUE = ("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name",
                    "-cn", "--config-dir", "-cd", "--experimental-rerun", "--info",
                    "-i")  # fmt: skip
MODES = (("--multirun", "-m"), ("--run", "-r"), ("--cfg", "-c"), ("--info", "-i"))
SEARCHPATH = "hydra.searchpath"


def reorder_flags(
    words: Sequence[str], suggest: Callable[[str, str], str] | None = None
) -> list[str]:
    """Returns the words with the flags first: `-m` between two overrides would end their list.

    Args:
        words: of the command line.
        suggest: returns the hint for an option typed as a flag, from its name and value.

    Raises:
        ConfigError: a flag that does not exist, or two that exclude each other.
    """
    flags: list[str] = []
    overrides: list[str] = []
    problems = []
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if word.startswith("-"):
            flags.append(word)
            if not _is_known(word):
                problems.append(_describe_unknown_flag(words, place, suggest))
        elif before in FLAGS_WITH_VALUE and "=" not in word:
            flags.append(word)
        else:
            overrides.append(word)
    modes = [names[0] for names in MODES if any(_is_flag(word, names) for word in flags)]
    if len(modes) > 1:
        problems.append(
            f"{' and '.join(modes)} exclude each other; to see the config of a run of a grid, "
            f"leave out {modes[0]} and give one value for each option"
        )
    if problems:
        raise ConfigError(problems)
    return [*flags, *overrides]


def _describe_unknown_flag(
    words: Sequence[str], place: int, suggest: Callable[[str, str], str] | None
) -> str:
    flag, _, value = words[place].partition("=")
    after = words[place + 1] if place + 1 < len(words) else "-"
    if "=" not in words[place]:
        value = "true" if after.startswith("-") or "=" in after else after
    hint = "" if suggest is None else suggest(flag.strip("-").replace("-", "_"), value)
    hint = hint or nearest(flag, (*FLAGS, *FLAGS_WITH_VALUE))
    return f"{flag}: no such flag{hint}; options are given as name=value"


def is_multirun(words: Sequence[str]) -> bool:
    """Returns True if the words ask for a grid of runs; experiments do so by their own mode."""
    return any(_is_flag(word, MODES[0]) or word.startswith("experiment=") for word in words)


def _is_flag(word: str, names: Sequence[str]) -> bool:
    flag = word.partition("=")[0]
    # argparse accepts the beginning of a long flag.
    return flag in names or (len(flag) > 4 and names[0].startswith(flag))


def _is_known(word: str) -> bool:
    return any(_is_flag(word, (name,)) for name in (*FLAGS, *FLAGS_WITH_VALUE))


def find_ignored_words(words: Sequence[str]) -> list[str]:
    """Returns a line for each word that Hydra would ignore without an error.

    These are search paths that do not exist and sweeps without a value.
    """
    overrides = [word for word in words if "=" in word and word[:1] not in ("-", "~")]
    return [
        *_find_missing_config_dir(words),
        *(
            problem
            for word in overrides
            for problem in (*_find_missing_folders(word), *_find_empty_sweep(word))
        ),
    ]


def _find_missing_config_dir(words: Sequence[str]) -> Iterator[str]:
    """Yields the problem of `--config-dir <folder>`."""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        flag, _, folder = word.partition("=")
        if flag in ("--config-dir", "-cd") and not Path(folder or following).is_dir():
            yield f"--config-dir: {folder or following} is not a folder"


def _find_missing_folders(word: str) -> Iterator[str]:
    """Yields the problems of `hydra.searchpath=[file://<folder>, pkg://<package>]`."""
    if not word.startswith(f"{SEARCHPATH}="):
        return
    override = _parse(word)
    value: Any = None if override is None else override.value()
    if not isinstance(value, list):
        yield f"{SEARCHPATH}: {word.partition('=')[2]} is not a list; write [file://<folder>]"
        return
    for place in value:
        parts = urlsplit(str(place))
        if parts.scheme not in ("file", "pkg", ""):
            yield f"{SEARCHPATH}: {place} is neither file://<folder> nor pkg://<package>"
        elif parts.scheme != "pkg" and not Path(str(place).removeprefix("file://")).is_dir():
            yield f"{SEARCHPATH}: {place} is not a folder"


def _find_empty_sweep(word: str) -> Iterator[str]:
    override = _parse(word)
    if override is not None and not expand_sweep(override, word):
        name, _, value = word.partition("=")
        yield f"{name}: {value} has no value, so the grid has no run"


def _parse(word: str) -> Override | None:
    """The parsed override; None if Hydra refuses it, which it will report itself."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    with suppress(HydraException):
        return OverridesParser.create().parse_override(word)
    return None


def expand_sweep(override: Override, word: str) -> list[str]:
    """Returns the overrides of a sweep's values one by one; `word` itself if it is not a sweep."""
    if not override.is_sweep_override() or not override.is_discrete_sweep():
        return [word]
    key = word.partition("=")[0]
    return [f"{key}={value}" for value in override.sweep_string_iterator()]
