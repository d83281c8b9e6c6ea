"""Error messages of all commands: one line per mistake of the user, a traceback for bugs."""

from __future__ import annotations

import errno
import functools
import os
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec

from dml.core.errors import (
    ConfigError,
    RunStopped,
    UserError,
    find_interruption,
    first_line,
    is_out_of_memory,
)
from dml.core.exit_status import ExitStatus
from dml.core.launcher import read_launch
from dml.core.plain_records import plain_records
from dml.core.plain_text import print_plain, show_text
from dml.core.secrets import mask_text
from dml.core.stream_encoding import accept_all_characters
from dml.core.tolerant_output import closable_output, discard

P = ParamSpec("P")
FULL_DISK = os.strerror(errno.ENOSPC)


def report_errors(main: Callable[P, int]) -> Callable[P, int]:
    """Decorates the main function of a command: errors are printed and give an exit status.

    Errors are printed by `print_error`, warnings by `plain_records`. An output that is closed
    (`| head`, a terminal that is gone) is not an error: the command ends in silence.
    """

    @functools.wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        _replace_closed_streams()
        accept_all_characters()
        with closable_output():
            try:
                try:
                    with plain_records():
                        return main(*args, **kwargs)
                finally:
                    if not isinstance(sys.exception(), Exception):
                        sys.stdout.flush()  # so that a full disk is reported here
            except BrokenPipeError:  # of bytes, which are written past `closable_output`
                discard(sys.stdout)
                return ExitStatus.FINISHED
            except (KeyboardInterrupt, RunStopped) as stop:
                return _report_stop(stop)
            except Exception as error:
                interruption = find_interruption(error)
                if interruption is not None:
                    return _report_stop(interruption)
                _report(error)
                return status_of(error)

    return run


def _report_stop(stop: BaseException) -> int:
    """Prints that the command was asked to stop, and returns its exit status."""
    if not isinstance(stop, RunStopped):  # by Ctrl-C, where nothing was saved
        print(
            "interrupted. Run the same command again; it continues from what was saved, if anything"
            " was.",
            file=sys.stderr,
        )
        return ExitStatus.INTERRUPTED
    if _rank() == 0:
        saved = "saved. Run the same command to continue." if stop.saved else "nothing to save yet"
        print_plain(f"{stop}; {saved}", file=sys.stderr)
    return stop.status


def _report(error: Exception) -> None:
    """Prints an error, also where an output can no longer be written."""
    if isinstance(error, OSError) and not error.filename:
        discard(sys.stdout)  # Python would print the same error again at exit
    try:
        print_error(error)
    except OSError:  # nothing can be said; the exit status still tells
        discard(sys.stderr)


def status_of(*errors: Exception) -> int:
    """Returns the exit status for errors: WRONG_COMMAND if all are ConfigError, else FAILED."""
    only_config = all(isinstance(error, ConfigError) for error in errors)
    return ExitStatus.WRONG_COMMAND if only_config else ExitStatus.FAILED


def print_error(error: Exception) -> None:
    """Prints one line per problem for mistakes of the user, and a traceback for bugs."""
    if isinstance(error, UserError):
        if error.repeated or (isinstance(error, ConfigError) and _rank() > 0):
            return  # another process of torchrun prints it
        lines = show_text(str(error)).splitlines()  # which also splits at control characters
    else:
        lines = _describe_library_error(error)
    if not lines:
        trace = "".join(traceback.format_exception(error))
        print_plain(mask_text(trace), end="", file=sys.stderr)
    for line in lines:
        print_plain(f"error: {mask_text(line)}", file=sys.stderr)


def _describe_library_error(error: Exception) -> list[str]:
    """Returns the line of an error that a user can mend; no line for a bug."""
    if isinstance(error, OSError) and error.strerror:
        return [_describe_system_error(error)]
    if FULL_DISK in str(error):  # of libraries with errors of their own, such as safetensors
        return [_describe_system_error(OSError(errno.ENOSPC, FULL_DISK))]
    if is_out_of_memory(error):
        return [
            f"memory: {first_line(error)}; smaller data.batch_size, "
            f"data.eval_batch_size, data.workers, transform.size or network need less"
        ]
    if type(error).__module__.startswith(("hydra.", "omegaconf.")):
        return [first_line(error)]
    return []


def _rank() -> int:
    """Returns the rank of this process; 0 if the launcher's variables are wrong."""
    try:
        return read_launch().rank
    except UserError:
        return 0


def describe_in_list(error: Exception) -> str:
    """Returns an error as a line of a list of failures, without what to do."""
    if isinstance(error, OSError) and error.strerror:
        return _name_file(error)
    return first_line(error)


def _name_file(error: OSError) -> str:
    return f"{error.filename or 'output'}: {error.strerror}"


def _describe_system_error(error: OSError) -> str:
    line = _name_file(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        line += "; all files saved before are intact; free disk space and run the same command"
        line += " to continue"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        line += "; raise the limit (ulimit -n 4096), or take fewer data.workers"
    return line


def _replace_closed_streams() -> None:
    """Opens /dev/null for streams that were closed before the start (`>&-`, daemons).

    Otherwise the first file that is opened would get the number of the stream, and what libraries
    print would be written into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
