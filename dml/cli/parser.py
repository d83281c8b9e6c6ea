"""What the commands without a config share: their parser, and the pace of garbage collection."""

from __future__ import annotations

import argparse
import atexit
import gc
from collections.abc import Callable
from pathlib import Path

MOST = 2**31 - 1  # of a count


def make_parser(text: str | None, program: str | None = None) -> argparse.ArgumentParser:
    """Returns a parser of options whose help is the docstring of a command, as it is written."""
    form = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(program, description=text, formatter_class=form)


def parse_path(text: str) -> Path:
    """Returns the path in a word of the command.

    Raises:
        ArgumentTypeError: the word is empty, which `Path` takes for the current folder.
    """
    if not text:
        raise argparse.ArgumentTypeError("is empty; give a path, or . for the current folder")
    return Path(text)


def whole_number(least: int) -> Callable[[str], int]:
    """Returns the type of an argument that is a whole number from `least` to `MOST`."""

    def parse(text: str) -> int:
        is_whole = text.isascii() and text.isdecimal()
        if not is_whole or len(text) > len(str(MOST)) or not least <= int(text) <= MOST:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a whole number from {least} to {MOST:,}"
            )
        return int(text)

    return parse


def rarely_collect_garbage() -> None:
    """Makes garbage collection rare, and leaves it out at the end of the process.

    A table of runs is many objects that live until the end: looking for garbage among them takes a
    fifth of the time.
    """
    gc.set_threshold(200_000)
    atexit.register(gc.freeze)
