"""A lock that the processes of torchrun, also on several machines, try against each other."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from dml.cli.machine.disk import LOCKS_REMEDY, can_lock, scratch_folder
from dml.cli.machine.outcome import Outcome
from dml.core.counts import count_of
from dml.core.errors import UserError, first_line
from dml.core.locks import Busy, try_lock
from dml.training.process_group import ProcessGroup, translate_connection_errors

SEEN_SECONDS = 10.0  # until another machine sees a new folder; NFS may take a few
SHARED_REMEDY = (
    "a run of torchrun needs the folder on its first machine only; machines that share the models "
    "of a run or the trials of a search need a folder that all of them see: outputs=<folder>"
)


def try_locks_of(outputs: Path, world: ProcessGroup) -> Outcome:
    """Tries a lock from the processes of torchrun, each of which must call this.

    Each process that sees the folder holds the lock in its turn, and the others must be refused.
    The next one must get it once it is released.

    Args:
        outputs: folder of runs.
        world: of `distributed_session`.
    """
    with ExitStack() as stack:

        def make() -> Path:
            return stack.enter_context(scratch_folder(outputs)) / "run.lock"

        lock = world.broadcast_from_main(make)
        sees = _wait_for_folder(lock.parent)
        seen = _gather((sees, socket.gethostname()), world)
        holders = [rank for rank, (has_folder, _) in enumerate(seen) if has_folder]
        for holder in holders:
            problem = _try_holder(lock, holder, sees, world)
            if problem:
                return Outcome(problem, LOCKS_REMEDY, works=False)
    machines = {name for _, name in seen}
    blind = sorted({name for has_folder, name in seen if not has_folder})
    if blind:
        result = f"{len(holders)} of {world.size} processes see the folder; not on {blind[0]}"
        return Outcome(result, SHARED_REMEDY, works=False, is_needed=False)
    return Outcome(
        f"refused while another process held it, and free after that: {world.size} processes on "
        f"{count_of(len(machines), 'machine')}, each in turn"
    )


def _try_holder(lock: Path, holder: int, sees: bool, world: ProcessGroup) -> str:
    """Returns what is wrong while a process holds the lock; empty if nothing is.

    All processes get the same answer, since each learns what the others saw.

    Args:
        lock: its file.
        holder: rank of the process that holds it.
        sees: whether this process sees the folder.
        world: all processes.
    """
    name = f"process {world.rank} on {socket.gethostname()}"
    with ExitStack() as stack:
        problem = ""
        if world.rank == holder:
            problem = _hold_in(stack, lock, name)
        problem = _first_problem(problem, world)
        if problem:
            return problem
        if sees and world.rank != holder:
            problem = _try_held(lock, holder, name)
        problem = _first_problem(problem, world)
    return _first_problem(problem, world)  # the lock is released before the next process tries it


def _hold_in(stack: ExitStack, lock: Path, name: str) -> str:
    """Holds a lock until the stack is closed; returns why it cannot, or an empty text."""
    try:
        stack.enter_context(try_lock(lock))
    except Busy:
        return f"{name} does not get the lock, which no process holds"
    except UserError as error:
        return f"{name}: {first_line(error)}"
    return ""


def _try_held(lock: Path, holder: int, name: str) -> str:
    """Tries the lock that another process holds; returns what is wrong, or an empty text."""
    try:
        if can_lock(lock):
            return f"{name} gets the lock while process {holder} holds it"
    except UserError as error:
        return f"{name}: {first_line(error)}"
    return ""


def _wait_for_folder(folder: Path) -> bool:
    """Returns whether a folder that another machine has made is seen within some seconds."""
    end = time.monotonic() + SEEN_SECONDS
    while not folder.exists():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _gather(answer: Any, world: ProcessGroup) -> list[Any]:
    """Returns the answers of all processes, in the order of ranks."""
    answers: list[Any] = [None] * world.size
    with translate_connection_errors():
        torch.distributed.all_gather_object(answers, answer)
    return answers


def _first_problem(problem: str, world: ProcessGroup) -> str:
    """Returns the first text of all processes that is not empty; waits for all of them."""
    return next(filter(None, _gather(problem, world)), "")
