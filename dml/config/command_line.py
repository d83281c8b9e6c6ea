"""The words of a command line before Hydra sees them: flags first, what cannot be meant refused."""

from __future__ import annotations

from collections.abc import Sequence

from dml.core.errors import ConfigError, nearest

ALONE = ("--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun",
         "-m", "--shell-completion", "-sc")  # fmt: skip
WITH_VALUE = ("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn",
              "--config-dir", "-cd", "--experimental-rerun", "--info", "-i")  # fmt: skip
MODES = (("--multirun", "-m"), ("--run", "-r"), ("--cfg", "-c"), ("--info", "-i"))


def reorder_flags(words: Sequence[str]) -> list[str]:
    """The words with the flags first, since `-m` between two overrides would end their list.

    Raises:
        ConfigError: a flag that does not exist, or two of which only one can be meant.
    """
    flags: list[str] = []
    overrides: list[str] = []
    problems = []
    for place, word in enumerate(words):
        before = words[place - 1] if place else ""
        if word.startswith("-"):
            flags.append(word)
            if not _known(word):
                hint = nearest(word, (*ALONE, *WITH_VALUE))
                problems.append(f"{word}: no such flag{hint}; options are given as name=value")
        elif before in WITH_VALUE and "=" not in word:
            flags.append(word)
        else:
            overrides.append(word)
    modes = [names[0] for names in MODES if any(_is(word, names) for word in flags)]
    if len(modes) > 1:
        problems.append(
            f"{' and '.join(modes)} do not go together; a grid's config can be seen run by run, "
            f"without {modes[0]} and with one value for each option"
        )
    if problems:
        raise ConfigError(problems)
    return [*flags, *overrides]


def is_multirun(words: Sequence[str]) -> bool:
    """Whether the words ask for a grid of runs."""
    return any(_is(word, MODES[0]) for word in words)


def _is(word: str, names: Sequence[str]) -> bool:
    flag = word.partition("=")[0]
    return flag in names or (len(flag) > 4 and names[0].startswith(flag))


def _known(word: str) -> bool:
    # Python's parser takes the beginning of a long flag for the flag.
    return any(_is(word, (name,)) for name in (*ALONE, *WITH_VALUE))
