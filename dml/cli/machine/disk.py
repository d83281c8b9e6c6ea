"""Whether the folder of runs can be written to and locked, and has free space."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from dml.cli.machine.outcome import Outcome
from dml.cli.machine.processes import receive, start_processes
from dml.core.atomic_io import replace_file
from dml.core.errors import UserError, first_line
from dml.core.locks import Busy, try_lock

SAMPLE_BYTES = 32 << 20
LEAST_BYTES = 1 << 30  # free: checkpoints and embeddings of a run
FIRST_ROW_BYTES = 4 << 30  # free: CUB, packed and unpacked, weights and runs
ANSWER_SECONDS = 60.0  # of a process that is started
FREE_SECONDS = 10.0  # from the kill of a process until its lock is free
OTHER_FOLDER = "choose a folder on another disk: outputs=<folder>"
LOCKS_REMEDY = (
    "choose a disk with locks (NFS from version 4, Lustre mounted with -o flock): outputs=<folder>"
)


@contextmanager
def scratch_folder(outputs: Path) -> Iterator[Path]:
    """Yields a new folder in the folder of runs; at the end removes what it has made.

    Raises:
        UserError: the folder cannot be written to.
    """
    made = [path for path in (outputs, *outputs.parents) if not path.exists()]
    try:
        outputs.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".check-", dir=outputs))
    except OSError as error:
        raise UserError(f"outputs: cannot write to {outputs}: {error.strerror}") from error
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        for path in made:
            with suppress(OSError):  # a run has written to it meanwhile
                path.rmdir()


def try_writing(outputs: Path) -> Outcome:
    """Writes a file as runs do, synced and renamed, and reads it."""
    content = os.urandom(1 << 20) * (SAMPLE_BYTES >> 20)
    with scratch_folder(outputs) as scratch:
        sample = scratch / "sample"
        start = time.perf_counter()
        try:
            with replace_file(sample) as temporary:
                temporary.write_bytes(content)
        except OSError as error:
            return Outcome(error.strerror or first_line(error), OTHER_FOLDER, works=False)
        seconds = time.perf_counter() - start
        if sample.read_bytes() != content:
            return Outcome("other bytes are read than were written", OTHER_FOLDER, works=False)
    return Outcome(f"{SAMPLE_BYTES >> 20} MB, {SAMPLE_BYTES / seconds / 1e6:.0f} MB/s")


def try_space(outputs: Path) -> Outcome:
    """Compares the free space with what runs need."""
    existing = outputs.absolute()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    result = f"{free / 1e9:.1f} GB"
    if free >= FIRST_ROW_BYTES:
        return Outcome(result)
    remedy = f"make room, or {OTHER_FOLDER}; the first row with its images needs 4 GB"
    return Outcome(result, remedy, works=False, is_needed=free < LEAST_BYTES)


def try_locks(outputs: Path) -> Outcome:
    """Tries a lock from two processes: while one holds it, and after that one was killed."""
    with scratch_folder(outputs) as scratch:
        lock = scratch / "run.lock"
        with start_processes(_hold, [(lock,)]) as (holder,):
            problem = receive(holder, ANSWER_SECONDS)
            if problem:
                return Outcome(problem, LOCKS_REMEDY, works=False)
            if can_lock(lock):
                return _unlocked()
        return _wait_for_free(lock)


def _unlocked() -> Outcome:
    return Outcome("two processes hold one lock at once", LOCKS_REMEDY, works=False)


def _wait_for_free(lock: Path) -> Outcome:
    """Returns whether the lock of a killed process becomes free."""
    end = time.monotonic() + FREE_SECONDS
    while not can_lock(lock):
        if time.monotonic() > end:
            result = f"the lock of a killed process is held after {FREE_SECONDS:.0f} s"
            return Outcome(result, LOCKS_REMEDY, works=False)
        time.sleep(0.1)
    return Outcome("refused while it was held, free when its holder was killed")


def can_lock(lock: Path) -> bool:
    """Returns whether this process gets a lock, which it releases again."""
    try:
        with try_lock(lock):
            return True
    except Busy:
        return False


def _hold(answer: Connection, lock: Path) -> None:
    """Holds a lock until this process is killed; sends an empty text, or why it cannot."""
    try:
        with try_lock(lock):
            answer.send("")
            answer.poll(None)
    except UserError as error:
        answer.send(first_line(error))
