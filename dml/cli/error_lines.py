"""Errors on the console: one line per problem for mistakes of users, a traceback for bugs."""

from __future__ import annotations

import errno
import sys
import traceback

from dml.core.errors import ConfigError, UserError, first_line, is_out_of_memory
from dml.core.launcher import read_launch

MAX_LENGTH = 800  # characters of a message: a value that it quotes may have any length
HEAD = 300  # characters kept before the part that is left out


def _shorten(line: str) -> str:
    """Cuts out the middle of a line that is too long to read."""
    left_out = len(line) - MAX_LENGTH
    if left_out <= 0:
        return line
    return f"{line[:HEAD]} … ({left_out} characters) … {line[HEAD + left_out :]}"


def print_error(error: Exception) -> None:
    """Prints one line per problem for the user's mistakes, a traceback for bugs."""
    if isinstance(error, UserError):
        if error.repeated or (isinstance(error, ConfigError) and read_launch().rank > 0):
            return  # another process of torchrun prints it
        for line in str(error).splitlines():
            print(f"error: {_shorten(line)}", file=sys.stderr)
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = error.filename or "a file"
        print(
            f"error: outputs: cannot write {where}: {error.strerror}; everything saved before is "
            f"intact; make room and run the same command to continue",
            file=sys.stderr,
        )
    elif is_out_of_memory(error):
        print(
            f"error: memory: {_shorten(first_line(error))}; smaller data.batch_size, "
            f"data.eval_batch_size, data.workers, transform.size or network need less",
            file=sys.stderr,
        )
    else:
        traceback.print_exception(error)
