"""A command in a forked process of its own, which is stopped when it waits or takes long."""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from dml.cli.program import main as dml
from scripts.fuzz.cases import Case

LOOK = 0.5  # seconds between two looks at a command that runs
POLL = 0.02  # seconds until its end is noticed
IDLE_SHARE = 0.01  # of a core: what polling takes
MEMORY = 6 << 30  # bytes of a command
FILE_SIZE = 1 << 30  # bytes


class Ending(StrEnum):
    """How a command ended."""

    ITSELF = "by itself"
    CUT = "cut"  # it worked for too long
    SILENT = "silent"  # it neither wrote nor worked


class Ended(NamedTuple):
    """The status of a command that has ended (negative: a signal), and how it ended."""

    status: int
    ending: Ending


def start(case: Case, folder: Path, log: Path) -> int:
    """Forks a process that runs a command in a session of its own; returns its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    if process := os.fork():
        return process
    status = 1
    try:
        _isolate(folder, log)
        status = _call(case)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _isolate(folder: Path, log: Path) -> None:
    """Gives this process its session, limits, folder, home and streams."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    os.chdir(folder)
    os.environ.update(HOME=str(folder.parent), HF_HUB_OFFLINE="1")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout = open(1, "w", closefd=False, errors="surrogateescape")  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115


def _call(case: Case) -> int:
    program, _, command = case.command.call.partition(" ")
    if command:
        sys.argv = [program, command, *case.words]
        return dml()
    module, _, name = program.partition(":")
    sys.argv = [module.rpartition(".")[2], *case.words]
    main: Callable[[], int] = getattr(importlib.import_module(module), name)
    return main()


def status_of(process: int) -> int:
    """Waits for a process and returns its status."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def watch(process: int, log: Path, seconds: float, silence: float) -> Ended:
    """Waits for a command, and kills it where it is silent or takes long.

    Args:
        process: its id, which is that of its session.
        log: that it writes.
        seconds: after which it is cut.
        silence: seconds without output and without work.
    """
    begin = active = looked = time.monotonic()
    work, written = 0.0, 0
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return Ended(os.waitstatus_to_exitcode(status), Ending.ITSELF)
        time.sleep(POLL)
        now = time.monotonic()
        if now - looked < LOOK:
            continue
        looked, used, size = now, processor_seconds(process), _size(log)
        has_worked = used > work + IDLE_SHARE * (now - active)
        if has_worked or size != written:
            active, work, written = now, used, size
        if now - active > silence:
            return Ended(_kill(process), Ending.SILENT)
        if now - begin > seconds:
            return Ended(_kill(process), Ending.CUT)


def processor_seconds(session: int) -> float:
    """Returns the processor time of all processes of a session."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _kill(session: int) -> int:
    os.killpg(session, signal.SIGKILL)
    return status_of(session)
