"""What the commands without a config share: their parser, and the pace of garbage collection."""

from __future__ import annotations

import argparse
import atexit
import gc
from typing import NoReturn

from dml.core.plain_text import show_line
from dml.core.secrets import mask_text


class PlainParser(argparse.ArgumentParser):
    """A parser whose errors show the control characters of words, and no secrets."""

    def error(self, message: str) -> NoReturn:
        """Prints the usage and one line, and ends the command with status 2."""
        super().error(show_line(mask_text(message)))


def make_parser(text: str | None, program: str | None = None) -> PlainParser:
    """Returns a parser of options whose help is the docstring of a command, as it is written."""
    form = argparse.RawDescriptionHelpFormatter
    return PlainParser(program, description=text, formatter_class=form)


def positive(text: str) -> int:
    """Returns a whole number above 0, as a type of a parser's option."""
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def not_negative(text: str) -> int:
    """Returns a whole number, also 0, as a type of a parser's option."""
    return 0 if text == "0" else positive(text)


def rarely_collect_garbage() -> None:
    """Makes garbage collection rare, and leaves it out at the end of the process.

    A table of runs is many objects that live until the end: looking for garbage among them takes a
    fifth of the time.
    """
    gc.set_threshold(200_000)
    atexit.register(gc.freeze)
