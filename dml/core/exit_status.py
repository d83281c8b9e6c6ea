"""Exit statuses of the commands."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit status of a command; docs/guides/resume.md lists them for users."""

    FINISHED = 0
    FAILED = 1
    WRONG_COMMAND = 2
    TIME_LIMIT = 75  # EX_TEMPFAIL: schedulers can be configured to restart the command
    HUNG_UP = 129  # 128 + SIGHUP: the terminal was closed
    INTERRUPTED = 130  # 128 + SIGINT
    TERMINATED = 143  # 128 + SIGTERM
