"""Runs of code that may hang, eat the memory or die, each in a forked process with limits.

The process that forks has imported everything, so that a run costs what it does, not what it loads.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MEMORY = 6 << 30  # address space beyond what the process has when it is forked
ESCAPED = 70  # an exception that nobody caught
TIMED_OUT = 124


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes:
        status: of the process; `TIMED_OUT` where it had to be ended, negative after a signal.
        out, err: what it printed.
        seconds: how long it took.
    """

    status: int
    out: str
    err: str
    seconds: float


def contained(work: Callable[[], int], folder: Path, seconds: float) -> Outcome:
    """Calls `work` in a forked process that lives in `folder` and ends with what it returns.

    Args:
        work: returns an exit status.
        folder: its working directory.
        seconds: how long it and the processes it starts may take.
    """
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _live(work, folder, seconds, out.fileno(), err.fileno())
        status = _awaited(child, begun + seconds + 5)
        return Outcome(status, _text(out), _text(err), time.monotonic() - begun)


def _live(work: Callable[[], int], folder: Path, seconds: float, out: int, err: int) -> None:
    status = ESCAPED
    try:
        os.setsid()  # its own children die with it
        for number, descriptor in ((1, out), (2, err)):
            os.dup2(descriptor, number)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="replace", closefd=False)
        os.chdir(folder)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.enable(sys.stderr)
        faulthandler.dump_traceback_later(seconds, file=sys.stderr)  # where it hangs
        status = work()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _awaited(child: int, deadline: float) -> int:
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _end_group(child)
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    _end_group(child)
    os.waitpid(child, 0)
    return TIMED_OUT


def _end_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def _text(file: object) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    return file.read().decode("utf-8", "replace")  # type: ignore[attr-defined]
