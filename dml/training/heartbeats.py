"""Signs of life of the processes that train a model together, in the launcher's store.

A collective operation waits for a stopped process as for a slow one, and does not say for which.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from dml.core import deadline
from dml.core.waits import NOTE_SECONDS, print_note

BEAT_SECONDS = 2.0
SILENT_SECONDS = 5.0  # without a sign of life, from which a process is named when the run ends


@dataclass
class _Other:
    """Another process: its last sign of life, when that came, and who it is."""

    sign: bytes = b""
    seen: float = 0.0
    pid: int = 0
    machine: str = ""

    @property
    def silent_seconds(self) -> float:
        return time.monotonic() - self.seen


class Heartbeats:
    """Sends signs of life of this process, and watches those of the others, in a thread.

    Args:
        store: of the process group.
        rank, size: of this process, and number of all.
        limit: what ends the wait for a silent process, for the note.
    """

    def __init__(self, store: dist.Store, rank: int, size: int, limit: str) -> None:
        self._store, self._rank, self._limit = store, rank, limit
        now = time.monotonic()
        self._others = {other: _Other(seen=now) for other in range(size) if other != rank}
        self._noted: set[int] = set()
        self._is_over = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sends and watches while the context is open."""
        threading.Thread(target=self._run, name="heartbeats", daemon=True).start()
        deadline.suspects.append(self.describe_silent)
        deadline.at_end.append(self.end_silent)
        try:
            yield
        finally:
            deadline.suspects.remove(self.describe_silent)
            deadline.at_end.remove(self.end_silent)
            self._is_over.set()

    def _run(self) -> None:
        beats = 0
        with suppress(RuntimeError):  # the store is gone, and the run ends
            while not self._is_over.wait(BEAT_SECONDS if beats else 0):
                beats += 1
                sign = f"{beats} {os.getpid()} {socket.gethostname()}"
                self._store.set(f"alive{self._rank}", sign)
                for rank, other in self._others.items():
                    self._look_at(rank, other)
                self._note_silent()

    def _look_at(self, rank: int, other: _Other) -> None:
        name = f"alive{rank}"
        sign = self._store.get(name) if self._store.check([name]) else b""
        if sign != other.sign:
            _, pid, machine = sign.decode().split(" ", 2)
            other.sign, other.seen = sign, time.monotonic()
            other.pid, other.machine = int(pid), machine
            self._noted.discard(rank)

    def _note_silent(self) -> None:
        """Prints a note if another process is silent, on the first one that is not."""
        silent = {
            rank for rank, other in self._others.items() if other.silent_seconds > NOTE_SECONDS
        }
        is_first = all(rank in silent for rank in range(self._rank))
        for rank in silent - self._noted if is_first else ():
            print_note(
                f"torchrun: {self._describe(rank)}; continue it if it was stopped (kill -CONT), or "
                f"end the run; {self._limit}"
            )
            self._noted.add(rank)

    def _describe(self, rank: int) -> str:
        other = self._others[rank]
        who = f"process {rank} ({other.pid} on {other.machine})" if other.pid else f"process {rank}"
        return f"{who} has not answered for {other.silent_seconds:.0f} s"

    def _silent(self) -> list[int]:
        others = self._others.items()
        return [rank for rank, other in others if other.silent_seconds > SILENT_SECONDS]

    def silent_seconds(self, rank: int) -> float:
        """Returns the time since the last sign of life of another process."""
        return self._others[rank].silent_seconds

    def describe_silent(self) -> str:
        """Returns which processes are silent."""
        return "; ".join(map(self._describe, self._silent()))

    def end_silent(self) -> None:
        """Kills the silent processes of this machine, whose end the launcher would wait for."""
        for rank in self._silent():
            other = self._others[rank]
            if other.machine == socket.gethostname() and _has_same_parent(other.pid):
                with suppress(OSError):
                    os.kill(other.pid, signal.SIGKILL)


def _has_same_parent(pid: int) -> bool:
    """Returns whether a process was started by the launcher of this one."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return int(status.rpartition(")")[2].split()[1]) == os.getppid()
