"""The words of a command line before Hydra sees them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

MULTIRUN = ("-m", "--multirun")
FLAGS = (*MULTIRUN, "--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r",
         "--shell-completion", "-sc")  # fmt: skip
FLAGS_WITH_VALUE = ("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name",
                    "-cn", "--config-dir", "-cd", "--experimental-rerun", "--info",
                    "-i")  # fmt: skip


def split_flags(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns Hydra's flags with their values, and all other words.

    Hydra expects flags first: `-m` between two overrides would end their list.
    """
    flags: list[str] = []
    others: list[str] = []
    for before, word in pairwise(["", *words]):
        is_flag = word.partition("=")[0] in FLAGS + FLAGS_WITH_VALUE
        is_value = before in FLAGS_WITH_VALUE and "=" not in word
        (flags if is_flag or is_value else others).append(word)
    return flags, others


def is_multirun(words: Sequence[str]) -> bool:
    """Returns True if the words ask for a grid of runs; experiments do so by their own mode."""
    return any(word in MULTIRUN or word.startswith("experiment=") for word in words)
