"""The parser of commands that take no options of a config."""

from __future__ import annotations

import argparse


def make_parser(text: str | None, program: str | None = None) -> argparse.ArgumentParser:
    """Returns a parser of options whose help is the docstring of a command, as it is written."""
    form = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(program, description=text, formatter_class=form)
