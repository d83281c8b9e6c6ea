"""`train.log`: start, notes, warnings, evaluations, saves, errors and end of a run."""

from __future__ import annotations

import logging
import shlex
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dml.core.errors import RunStopped, UserError
from dml.core.memory import keeps_freed_memory
from dml.core.progress import format_seconds
from dml.core.run_logger import run_logger

LOG = "train.log"


@contextmanager
def write_log(folder: Path, work: str) -> Iterator[None]:
    """Appends to the log of a run folder: what `run_logger` gets, all warnings, the end.

    Several processes may write to it; every line names its process. A log that cannot be written
    is left out: no run fails for it.

    Args:
        folder: of the run.
        work: a word for the last line, such as `run`.
    """
    try:
        handler = _Appender(folder / LOG)
    except OSError:
        yield
        return
    root = logging.getLogger()
    pairs: list[tuple[logging.Logger, logging.Handler]] = [(run_logger, handler), (root, handler)]
    if not root.handlers and logging.lastResort is not None:
        pairs.append((root, logging.lastResort))  # prints warnings where nothing else does
    for logger, one in pairs:
        logger.addHandler(one)
    try:
        with _log_warnings(), _log_end(work):
            yield
    finally:
        for logger, one in pairs:
            logger.removeHandler(one)
        handler.close()


def log_start(versions: dict[str, str]) -> None:
    """Logs the command and the versions of the packages."""
    run_logger.info("command: %s", shlex.join(sys.argv))
    run_logger.info(
        "versions: %s", ", ".join(f"{name} {value}" for name, value in versions.items())
    )
    if keeps_freed_memory():
        run_logger.info("memory: freed memory stays in the process (keep_memory=true)")


class _Appender(logging.Handler):
    """Writes each message at once and as a whole, so that lines of processes do not mix."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self.setFormatter(logging.Formatter("%(asctime)s [%(process)d] %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError):  # a full disk; a message that cannot be formatted
            self._file.write(f"{self.format(record)}\n".encode(errors="replace"))

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()
        super().close()


@contextmanager
def _log_warnings() -> Iterator[None]:
    """Logs Python's warnings, which are printed as before."""
    show = warnings.showwarning

    def show_and_log(message: Any, category: Any, filename: str, lineno: int, *more: Any) -> None:
        show(message, category, filename, lineno, *more)
        run_logger.info("%s: %s (%s:%d)", category.__name__, message, filename, lineno)

    warnings.showwarning = show_and_log  # type: ignore[assignment]
    try:
        yield
    finally:
        if warnings.showwarning is show_and_log:
            warnings.showwarning = show


@contextmanager
def _log_end(work: str) -> Iterator[None]:
    started = time.monotonic()
    try:
        yield
    except RunStopped as stop:
        run_logger.info("%s; %s", stop, "saved" if stop.saved else "nothing to save yet")
        raise
    except KeyboardInterrupt:
        run_logger.info("interrupted")
        raise
    except UserError as error:
        for line in str(error).splitlines():
            run_logger.info("error: %s", line)
        raise
    except BaseException:
        run_logger.info("error: %s", traceback.format_exc().rstrip())
        raise
    run_logger.info("%s finished after %s", work, format_seconds(time.monotonic() - started))
