"""The end of a process that SIGTERM asked to stop, and that hangs.

A run stops after its step, when its state is saved. Where the main thread never gets there, because
it waits in a library for a process that does not answer, no handler of Python runs: a thread ends
the process then, with a line that says what hung and from where the same command continues. Who
sends SIGTERM often sends SIGKILL ten seconds later, which tells nothing.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from dml.core.exit_status import ExitStatus

STOP_SECONDS = 8.0  # from SIGTERM to the end by force; docker and others kill after 10
PRINT_SECONDS = 0.5  # for the last line, where the reader of the output may hang, too

BLOCKED_SECONDS = 3.0  # the same, where something is known to hang

# Each tells what hangs, as `process 1 has not answered for 12 s`; empty: nothing.
suspects: list[Callable[[], str]] = []
at_end: list[Callable[[], None]] = []  # called before the end by force
_saved = "the same command starts from the beginning"
_asked: list[float] = []  # when SIGTERM came
_watched: list[int] = []  # the file to which the C handler writes, while a context is open


def note_saved(model: str, step: int) -> None:
    """Remembers that a complete checkpoint of a model is on disk, for the last line."""
    global _saved
    _saved = f"the same command continues {model} from step {step}"


def seconds_left() -> float:
    """Returns the seconds until the end by force; `STOP_SECONDS` if nothing asked for it."""
    if not _asked:
        return STOP_SECONDS
    return max(0.0, _asked[0] + STOP_SECONDS - time.monotonic())


@contextmanager
def end_in_time() -> Iterator[None]:
    """Ends the process `STOP_SECONDS` after SIGTERM if the context is still open then.

    Only the main thread can, where signals are handled; elsewhere this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    if before != -1:  # another library, such as asyncio, has it
        signal.set_wakeup_fd(before)
        receiver.close()
        sender.close()
        yield
        return
    _watched.append(sender.fileno())
    is_over = threading.Event()
    thread = threading.Thread(target=_watch, args=(receiver, is_over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        signal.set_wakeup_fd(-1)
        _watched.clear()
        sender.shutdown(socket.SHUT_WR)  # forked processes may still have it open
        sender.close()
        thread.join()
        receiver.close()
        _asked.clear()


def _watch(receiver: socket.socket, is_over: threading.Event) -> None:
    """Waits for the number of a signal, which the C handler writes at once."""
    while numbers := receiver.recv(16):
        if signal.SIGTERM in numbers:
            _asked.append(time.monotonic())
            is_ended = is_over.wait(min(BLOCKED_SECONDS, STOP_SECONDS))
            if not is_ended and not _describe_suspects():
                is_ended = is_over.wait(seconds_left())
            if not is_ended:
                _end()
            return


def _describe_suspects() -> str:
    texts = []
    for describe in suspects:
        text = describe()
        if text:
            texts.append(text)
    return "; ".join(texts)


def _end() -> None:
    """Ends the process and its child processes, with a line that says why."""
    what = _describe_suspects() or "the work did not come to the end of its step"
    seconds = time.monotonic() - _asked[0]
    line = f"ended by force {seconds:.0f} s after SIGTERM: {what}; {_saved}\n"
    printer = threading.Thread(target=os.write, args=(2, line.encode()), daemon=True)
    printer.start()
    printer.join(PRINT_SECONDS)
    for call in at_end:
        call()
    for process in multiprocessing.active_children():
        with suppress(OSError):
            process.kill()
    os._exit(ExitStatus.TERMINATED)


def _leave_parent() -> None:
    """Tells the parent nothing of the signals of a forked child, such as a loading process."""
    if _watched and threading.current_thread() is threading.main_thread():
        signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_leave_parent)
