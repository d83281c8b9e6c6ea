"""The connection between the processes that a launcher started."""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count

import torch
import torch.distributed as dist

from dml.core.errors import ConfigError, UserError
from dml.core.launcher import Launch, read_launch
from dml.training.collectives import ConnectionLost, translate_connection_errors
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup

# For a process or machine that hangs; the end of a process is noticed at once. The other processes
# wait for the first one no longer than an evaluation takes.
TIMEOUT = timedelta(minutes=15)

_store: dist.Store | None = None  # of the launcher; opened once per process
_runs = count()


@contextmanager
def distributed_session(device: str) -> Iterator[ProcessGroup]:
    """Connects the processes that the launcher started, for one run.

    After a run that failed, the next run of a multirun connects anew.

    Args:
        device: the option `device`; decides the backend.

    Raises:
        UserError: the others cannot be reached.
    """
    launch = read_launch()
    if launch.size == 1:
        yield SINGLE_PROCESS
        return
    store = _connect(launch, _backend(device))
    try:
        yield ProcessGroup(launch.rank, launch.size)
        with translate_connection_errors():
            dist.barrier()  # no process disconnects while another one waits for it
    except UserError as error:
        if isinstance(error, ConnectionLost):
            _ignore_termination()
        if isinstance(error, ConfigError):  # the same on all processes
            error.repeated = launch.rank > 0
        else:
            error.repeated = error.repeated or _was_reported(store, str(error))
        raise
    finally:
        dist.destroy_process_group()


def _ignore_termination() -> None:
    """Ignores the SIGTERM that torchrun sends when another process died.

    This process still has to report the error, and ends then; otherwise torchrun kills it after
    half a minute.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _backend(device: str) -> str:
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return "cpu:gloo,cuda:nccl" if on_gpu else "gloo"


def _connect(launch: Launch, backend: str) -> dist.Store:
    global _store
    try:
        if _store is None:
            rendezvous = dist.rendezvous("env://", launch.rank, launch.size, timeout=TIMEOUT)
            _store = next(rendezvous)[0]
        # The store still has the entries of earlier runs of a multirun.
        store = dist.PrefixStore(f"run{next(_runs)}", _store)
        dist.init_process_group(
            backend, store=store, rank=launch.rank, world_size=launch.size, timeout=TIMEOUT
        )
    except (RuntimeError, ValueError) as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"torchrun: process {launch.rank} cannot reach the other {launch.size - 1}: {line}"
        ) from error
    return store


def _was_reported(store: dist.Store, message: str) -> bool:
    """Returns True if another process of the run has reported the same message."""
    try:
        return store.add(hashlib.sha256(message.encode()).hexdigest(), 1) > 1
    except Exception:  # the process with the store ended: better reported twice than never
        return False
