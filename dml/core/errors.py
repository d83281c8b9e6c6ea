"""Exceptions with messages for users, and helpers to write such messages."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

# Path prefixes of code that is not the user's: this package, libraries, generated code.
NOT_THE_USERS = (
    str(Path(__file__).parents[1]),
    *(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib")),
    "<",
)


class UserError(Exception):
    """A problem that the user can fix; printed without a traceback.

    The message names the dotted option, says what is wrong and what to do, one line per problem.

    Attributes:
        repeated: True if another process of the same run reports the problem.
    """

    repeated = False


class ConfigError(UserError):
    """All problems of a config, found before data are read or a GPU is used.

    Attributes:
        problems: one line each; line breaks in quoted values are escaped.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = ["\\n".join(problem.splitlines()) for problem in problems]
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str]]]:
        """Pickles the constructor's arguments, for another process."""
        return type(self), (self.problems,)


def nearest(name: object, valid: Iterable[str], similarity: float = 0.6) -> str:
    """Returns `; did you mean 'x'?` for the valid name closest to `name`, else an empty string."""
    close = nearest_name(name, valid, similarity)
    return f"; did you mean '{close}'?" if close else ""


def nearest_name(name: object, valid: Iterable[str], similarity: float = 0.6) -> str:
    """Returns the valid name closest to `name`; empty if none is close."""
    names = list(valid)
    typed = str(name)
    cased = [candidate for candidate in names if candidate.lower() == typed.lower()]
    # With two letters swapped, lgo means log and not low.
    swapped = [candidate for candidate in names if sorted(candidate) == sorted(typed)]
    close = cased or swapped or get_close_matches(typed, names, n=1, cutoff=similarity)
    return close[0] if close else ""


def first_line(error: BaseException) -> str:
    """Returns the first line of an exception's message, or the name of its class.

    The number of an error of the system is left out: "[Errno 2] No such file or directory: 'x'".
    """
    line = next(iter(str(error).splitlines()), "").strip()
    if isinstance(error, OSError):
        line = line.removeprefix(f"[Errno {error.errno}] ")
    return line or type(error).__name__


def describe_failure(error: BaseException) -> str:
    """Returns an exception's message on one line; with class, file and line for a user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not frame.filename.startswith(NOT_THE_USERS)]
    if not users:
        return first_line(error)
    location = f"{Path(users[-1].filename).name}, line {users[-1].lineno}"
    return f"{type(error).__name__}: {' '.join(str(error).split())} ({location})"


@contextmanager
def translate_custom_errors(advice: str) -> Iterator[None]:
    """Makes a UserError of an exception that a user's network, method or loss raises.

    Errors of the system, such as a full disk, and of the memory pass.

    Args:
        advice: the end of the message.

    Raises:
        UserError: the exception comes from code of the user, or of a library that it calls.
    """
    try:
        yield
    except (UserError, OSError):
        raise
    except Exception as error:
        if is_out_of_memory(error) or not _comes_from_user(error):
            raise
        raise UserError(f"your code failed: {describe_failure(error)}; {advice}") from error


def _comes_from_user(error: Exception) -> bool:
    """Returns whether the last file of an error, besides those of libraries, is a user's."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    files = [file for file in files if not file.startswith(NOT_THE_USERS[1:])]
    return bool(files) and not files[-1].startswith(NOT_THE_USERS[0])


@contextmanager
def refuse_exits() -> Iterator[None]:
    """Makes a UserError of a SystemExit, or the like, that a user's loss, network or reader raises.

    Requests to stop pass: Ctrl-C and `RunStopped`.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit, RunStopped):
        raise
    except BaseException as error:
        name, description = type(error).__name__, describe_failure(error)
        shown = description if description.startswith(name) else f"{name}: {description}"
        raise UserError(f"{shown}: it would end the program; raise an Exception instead") from error


def find_interruption(error: BaseException) -> BaseException | None:
    """Returns the request to stop during whose handling an exception was raised; None if none was.

    A library that Ctrl-C interrupts between two of its lines may raise an error of any class.
    """
    earlier = error.__context__
    while earlier is not None:
        if isinstance(earlier, KeyboardInterrupt | RunStopped):
            return earlier
        earlier = earlier.__context__
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error reports a lack of memory, on the CPU or on a GPU.

    PyTorch has an exception class only for GPU memory.
    """
    messages = (
        "out of memory",
        "can't allocate memory",
        "Cannot allocate memory",
        "std::bad_alloc",
        "not enough memory",
        "Storage size calculation overflowed",
        "failed to map segment",  # of a library that is imported
        "could not create a primitive",  # oneDNN
        "could not create a memory",
        "could not be made C-contiguous",  # matplotlib
    )
    may_be = isinstance(error, RuntimeError | ImportError | ValueError)
    return isinstance(error, MemoryError) or (
        may_be and any(text in str(error) for text in messages)
    )


class RunStopped(BaseException):
    """A run was asked to stop; its state is saved and the same command continues it.

    A BaseException like KeyboardInterrupt: a multirun ends with it and starts no further job.

    Attributes:
        status: exit status of the process: 130 after SIGINT, 143 after SIGTERM, 75 at a time limit.
        saved: False if there was nothing to save, for example while a dataset is decoded.
    """

    def __init__(self, reason: str, status: int, saved: bool = True) -> None:
        self.status, self.saved = status, saved
        super().__init__(reason)

    def __reduce__(self) -> tuple[type[RunStopped], tuple[str, int, bool]]:
        """Pickles the constructor's arguments, for another process."""
        return type(self), (str(self), self.status, self.saved)
