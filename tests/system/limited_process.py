"""Code that may hang, fill the memory or die, run in a forked process with limits.

The process that forks has imported everything, so a run costs no start of an interpreter.
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

MEMORY = 6 << 30  # address space beyond that of the process when it is forked
UNCAUGHT = 70  # exit status after an exception that nothing caught
TIMED_OUT = 124


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Attributes:
        status: exit status; `TIMED_OUT` after its time limit, negative after a signal.
        out, err: the text that it printed.
    """

    status: int
    out: str
    err: str


def train_command(*words: str) -> int:
    """Runs `train.py` with these words in this process; returns its exit status."""
    from hydra.core.global_hydra import GlobalHydra

    from dml.cli import command
    from dml.cli.train_command import resume, train

    GlobalHydra.instance().clear()
    sys.argv = ["train.py", *words]
    return command(train, "train", resume)


def run_limited(
    work: Callable[[], int],
    folder: Path,
    seconds: float,
    act: Callable[[int], bool] | None = None,
) -> Ended:
    """Calls `work` in a forked process, in `folder`.

    Args:
        work: returns the exit status.
        folder: working directory of the process.
        seconds: time limit of the process and of those that it starts.
        act: called with the process group again and again, until it returns True.
    """
    deadline = time.monotonic() + seconds + 5
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _run_in_child(work, folder, seconds, out.fileno(), err.fileno())
        status = _wait(child, deadline, act)
        return Ended(status, _text(out), _text(err))


def _run_in_child(
    work: Callable[[], int], folder: Path, seconds: float, out: int, err: int
) -> None:
    status = UNCAUGHT
    try:
        os.setsid()  # the processes that it starts die with it
        for number, descriptor in ((1, out), (2, err)):
            os.dup2(descriptor, number)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="replace", closefd=False)
        os.chdir(folder)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        faulthandler.enable(sys.stderr)
        faulthandler.dump_traceback_later(seconds, file=sys.stderr)  # shows where it hangs
        status = work()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(child: int, deadline: float, act: Callable[[int], bool] | None) -> int:
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            _kill_group(child)
            return os.waitstatus_to_exitcode(status)
        if act is not None and act(child):
            act = None
        time.sleep(0.01)
    _kill_group(child)
    os.waitpid(child, 0)
    return TIMED_OUT


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def _text(file: object) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    return file.read().decode("utf-8", "replace")  # type: ignore[attr-defined]
