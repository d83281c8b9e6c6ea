"""How the processes that a launcher started find each other, and how they part."""

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
from dml.training.collectives import LostContact, contact
from dml.training.process_group import ALONE, World

# For a process or machine that hangs: one that ends is noticed at once. The longest that the others
# wait for the first one is an evaluation.
TIMEOUT = timedelta(minutes=15)

_store: dist.Store | None = None  # where processes find each other; once per process
_runs = count()


@contextmanager
def distributed_session(device: str) -> Iterator[World]:
    """Joins the processes that the launcher started, for one run.

    One run's failure leaves the next run of a multirun a fresh start.

    Args:
        device: the option `device`; decides how processes talk to each other.

    Raises:
        UserError: the others cannot be reached.
    """
    launch = read_launch()
    if launch.size == 1:
        yield ALONE
        return
    store = _join(launch, _backend(device))
    try:
        yield World(launch.rank, launch.size)
        with contact():
            dist.barrier()  # nobody leaves while another one still waits for an answer
    except UserError as error:
        if isinstance(error, LostContact):
            _outlive_the_launcher()
        if isinstance(error, ConfigError):  # the same on all processes
            error.repeated = launch.rank > 0
        else:
            error.repeated = error.repeated or _was_said(store, str(error))
        raise
    finally:
        dist.destroy_process_group()


def _outlive_the_launcher() -> None:
    """Torchrun sends SIGTERM when a process died; this one still has to say so, and ends anyway.

    A process that does not end is killed by torchrun half a minute later.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _backend(device: str) -> str:
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return "cpu:gloo,cuda:nccl" if on_gpu else "gloo"


def _join(launch: Launch, backend: str) -> dist.Store:
    global _store
    try:
        if _store is None:
            found = dist.rendezvous("env://", launch.rank, launch.size, timeout=TIMEOUT)
            _store = next(found)[0]
        # A store keeps what earlier runs of a multirun wrote into it.
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


def _was_said(store: dist.Store, message: str) -> bool:
    """Whether another process of the run has the same to say and was first."""
    try:
        return store.add(hashlib.sha256(message.encode()).hexdigest(), 1) > 1
    except Exception:  # the process that keeps the store is gone: better said twice than never
        return False
