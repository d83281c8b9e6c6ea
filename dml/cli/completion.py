"""Completion of commands in bash and zsh by argcomplete."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping

import argcomplete

from dml.cli.parser import Parser


def complete(commands: Mapping[str, Parser]) -> None:
    """Answers the shell that asks for completions, and ends the process.

    Args:
        commands: parser of each command by its name.
    """
    program = ArgumentParser("dml")
    choices = program.add_subparsers()
    for name, parser in commands.items():
        choices.add_parser(name, parents=[parser], add_help=False)
    argcomplete.autocomplete(program, always_complete_options=False)
