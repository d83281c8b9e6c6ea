"""Errors of all commands: one line per problem for mistakes of users, a traceback for bugs."""

from __future__ import annotations

import errno
import functools
import os
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec

from dml.core.errors import ConfigError, RunStopped, UserError, first_line, is_out_of_memory
from dml.core.exit_status import ExitStatus
from dml.core.launcher import read_launch
from dml.core.secrets import mask_text

P = ParamSpec("P")
MAX_LENGTH = 800  # characters of a message: a value that it quotes may have any length
HEAD = 300  # characters kept before the part that is left out


def report_errors(main: Callable[P, int]) -> Callable[P, int]:
    """Makes the main function of a command return an exit status whatever happens in it.

    Errors are printed by `print_error`. An output whose reader is gone (`| head`) is no error.
    """

    @functools.wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            try:
                return main(*args, **kwargs)
            finally:
                if not isinstance(sys.exception(), Exception):
                    sys.stdout.flush()  # here, where a full disk or a closed pipe is reported
        except RunStopped as stop:
            if read_launch().rank == 0:
                saved = "saved, the same command continues" if stop.saved else "nothing to save yet"
                print(f"{stop}; {saved}", file=sys.stderr)
            return stop.status
        except KeyboardInterrupt:
            print(
                "interrupted; the same command continues from the last checkpoint if there is one",
                file=sys.stderr,
            )
            return ExitStatus.INTERRUPTED
        except BrokenPipeError:
            _discard_output()
            return ExitStatus.FINISHED
        except Exception as error:
            if isinstance(error, OSError) and not error.filename:
                _discard_output()  # of /dev/full: Python would print the same error at its exit
            print_error(error)
            return status_of(error)

    return run


def status_of(*errors: Exception) -> int:
    """Returns the exit status after some errors."""
    only_config = all(isinstance(error, ConfigError) for error in errors)
    return ExitStatus.WRONG_COMMAND if only_config else ExitStatus.FAILED


def print_error(error: Exception) -> None:
    """Prints one line per problem for the user's mistakes, a traceback for bugs."""
    if isinstance(error, UserError):
        if error.repeated or (isinstance(error, ConfigError) and read_launch().rank > 0):
            return  # another process of torchrun prints it
        lines = str(error).splitlines()
    elif isinstance(error, OSError) and error.strerror:
        name = error.filename or "output"
        lines = [f"{name}: {error.strerror}"]
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            lines[0] += (
                "; everything saved before is intact; make room and run the same command to "
                "continue"
            )
    elif is_out_of_memory(error):
        lines = [
            f"memory: {_shorten(first_line(error))}; smaller data.batch_size, "
            f"data.eval_batch_size, data.workers, transform.size or network need less"
        ]
    elif type(error).__module__.startswith(("hydra.", "omegaconf.")):
        lines = [first_line(error)]
    else:
        print(mask_text("".join(traceback.format_exception(error))), end="", file=sys.stderr)
        return
    for line in lines:
        print(f"error: {_shorten(mask_text(line))}", file=sys.stderr)


def _shorten(line: str) -> str:
    """Cuts out the middle of a line that is too long to read."""
    left_out = len(line) - MAX_LENGTH
    if left_out <= 0:
        return line
    return f"{line[:HEAD]} … ({left_out} characters) … {line[HEAD + left_out :]}"


def _discard_output() -> None:
    """Sends what is left in the buffer of stdout nowhere, so that the flush at exit succeeds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
