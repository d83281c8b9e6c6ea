"""Commands on a terminal of their own that closes, as when an ssh connection ends."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

from dml.cli.entry_point import main
from tests.forked import context

LONGEST = 60.0  # seconds that a test waits for an event


class Terminal:
    """A terminal, and a command that a process runs in it.

    Args:
        words: name and arguments of the command.
        folder: in which it runs.
        controls: whether the process gets SIGHUP when the terminal closes; False: as after
            `disown`, or where the output is a terminal of others.
    """

    def __init__(self, words: tuple[str, ...], folder: Path, controls: bool = True) -> None:
        self._words, self._folder, self._controls = words, folder, controls
        self.shown = b""
        self._master: int | None
        self._master, self._slave = pty.openpty()
        self.process = context().Process(target=self._become)
        self.process.start()
        os.close(self._slave)

    def _become(self) -> None:
        os.close(self._master)
        os.setsid()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests may run under nohup, which ignores it
        if self._controls:
            fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)
        for number in range(3):
            os.dup2(self._slave, number)
        os.environ["TERM"] = "xterm"
        os.chdir(self._folder)
        sys.argv = ["dml", *self._words]
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - by lines, as of a terminal
        os._exit(main())

    def read_until(self, happened: Callable[[], object], longest: float = LONGEST) -> None:
        """Reads what the command shows until something has happened."""
        end = time.monotonic() + longest
        while not happened():
            assert time.monotonic() < end, self.shown[-2000:]
            readable, _, _ = select.select([self._master], [], [], 0.01)
            if readable:
                try:
                    self.shown += os.read(self._master, 1 << 16)
                except OSError:  # the command ends, and all of its processes have
                    self.process.join()

    def close(self) -> None:
        """Closes the terminal; nothing happens if it is closed."""
        if self._master is not None:
            os.close(self._master)
        self._master = None

    def wait(self) -> int | None:
        """Returns the exit status of the command; None if it had to be killed."""
        self.process.join(LONGEST)
        status = self.process.exitcode
        if status is None:
            self.process.kill()  # it would train on, and slow all other tests down
        return status
