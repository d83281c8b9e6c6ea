"""`train.log`: start, notes, warnings, evaluations, saves, errors and end of a run.

Messages of `run_logger` are not printed, and dropped while no file is open.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from dml.core.errors import RunStopped, UserError
from dml.core.installation import is_program, shell_command, versions
from dml.core.memory import keeps_freed_memory
from dml.core.plain_records import plain_records
from dml.core.plain_text import print_plain
from dml.core.progress import format_seconds
from dml.core.regular_files import check_unlinked
from dml.core.secrets import MaskingFormatter, mask_words

run_logger = logging.getLogger("dml.train_log")
run_logger.setLevel(logging.INFO)
run_logger.propagate = False  # Hydra prints what reaches the root logger
logging.getLogger("faiss.loader").setLevel(logging.WARNING)  # it reports each attempt to load


@contextmanager
def write_log(folder: Path, work: str) -> Iterator[None]:
    """Appends the messages of `run_logger`, all warnings and the end of the work to `train.log`.

    Several processes may write to it; every line names its process.

    Args:
        folder: of the run.
        work: a word for the last line, such as `run`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    check_unlinked(folder / "train.log")
    handler = _open(folder / "train.log")
    with suppress(OSError):  # of another user
        os.chmod(folder / "train.log", 0o600)  # tracebacks of any code may show a secret
    handler.setFormatter(MaskingFormatter("%(asctime)s [%(process)d] %(message)s"))
    root = logging.getLogger()
    pairs: list[tuple[logging.Logger, logging.Handler]] = [(run_logger, handler), (root, handler)]
    if not root.handlers and logging.lastResort is not None:
        pairs.append((root, logging.lastResort))  # prints warnings where nothing else does
    with ExitStack() as stack:
        stack.enter_context(plain_records())
        stack.callback(handler.close)
        for logger, added in pairs:
            logger.addHandler(added)
            stack.callback(logger.removeHandler, added)
        # else the caller's program has asked for it
        if warnings.showwarning.__module__ != "logging":
            stack.callback(logging.captureWarnings, False)
        logging.captureWarnings(True)
        started = time.monotonic()
        try:
            yield
        except RunStopped as stop:
            run_logger.info("%s; %s", stop, "saved" if stop.saved else "nothing to save yet")
            raise
        except UserError as error:
            run_logger.info("error: %s", error)
            raise
        except BaseException:
            run_logger.info("error", exc_info=True)
            raise
        run_logger.info("%s finished after %s", work, format_seconds(time.monotonic() - started))


def _open(path: Path) -> logging.Handler:
    """Returns the handler that appends to a log; one that drops all lines if it is another user's.

    A folder of runs may be shared, and the log is for the eyes of the user who began it.
    """
    try:
        return _LogFile(path, encoding="utf-8", errors="replace")
    except PermissionError:
        print_plain(
            f"note: {path} belongs to another user; this run is not logged", file=sys.stderr
        )
        return logging.NullHandler()


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Drops a line that cannot be written, for which logging would print a traceback."""

    def close(self) -> None:
        """Closes the file; an error of its storage does not hide the one that ends the run."""
        with suppress(OSError):
            super().close()


def log_start() -> None:
    """Logs the command and the versions of the packages."""
    run_logger.info("command: %s", _typed_command())
    packages = (f"{name} {value}" for name, value in versions().items())
    run_logger.info("versions: %s", ", ".join(packages))
    if keeps_freed_memory():
        run_logger.info("memory: freed memory stays in the process (keep_memory=true)")


def _typed_command() -> str:
    program, *words = mask_words(sys.argv)
    if is_program(program):
        program = shell_command("train")
    return f"{program} {shlex.join(words)}".rstrip()
