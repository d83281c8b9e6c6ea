"""The one exception whose message is meant for the user's eyes."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """A problem the user can mend: shown as it stands, without a traceback.

    The message names the dotted option, says what is wrong and what to do, one line per problem.

    Attributes:
        repeated: another process of the same run says it.
    """

    repeated = False


class ConfigError(UserError):
    """Everything that is wrong with a config, found before data or GPU are touched.

    Attributes:
        problems: one line each, whatever line breaks are in the values that they quote.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = ["\\n".join(problem.splitlines()) for problem in problems]
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str]]]:
        """As it was made, when a process passes it on."""
        return type(self), (self.problems,)


def nearest(name: object, valid: Iterable[str]) -> str:
    """Returns `; did you mean 'x'?` for the valid name closest to `name`, else an empty string."""
    close = get_close_matches(str(name), list(valid), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def first_line(error: BaseException) -> str:
    """Of an exception's message; its class where it has none."""
    return next(iter(str(error).splitlines()), "").strip() or type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether there was no memory, of the machine or of its GPU, for what was asked for.

    torch has no class of its own for the machine's.
    """
    told = ("can't allocate memory", "not enough memory", "Storage size calculation overflowed")
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and any(words in str(error) for words in told))
    )


class RunStopped(BaseException):
    """A run was asked to stop; its state is saved and the same command continues it.

    Like KeyboardInterrupt no `Exception`: a multirun must end with it, not go on to the next job.

    Attributes:
        status: exit status of the process: 130 after SIGINT, 143 after SIGTERM, 75 at a time limit.
        saved: False where there was nothing to save yet, as while a dataset is decoded.
    """

    def __init__(self, reason: str, status: int, saved: bool = True) -> None:
        self.status, self.saved = status, saved
        super().__init__(reason)

    def __reduce__(self) -> tuple[type[RunStopped], tuple[str, int, bool]]:
        """As it was made, when a process passes it on."""
        return type(self), (str(self), self.status, self.saved)
