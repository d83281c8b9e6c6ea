"""Errors of the machine, such as a lack of memory, as messages for users."""

from __future__ import annotations

import errno
import re
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch

from dml.core.errors import UserError, is_out_of_memory
from dml.data.loaders import DEAD_WORKER

SHARED_MEMORY = "/dev/shm"  # where Linux keeps what processes share
# Errors of a disk or server that answers no longer, such as that of a network file system.
STORAGE_LOST = (errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EROFS, errno.ETIMEDOUT)
# Parts of messages of torch and Python, in which the number of the error may be missing.
TOO_MANY_FILES = ("Too many open files", "received 0 items of ancdata")
TOO_MANY_PROCESSES = ("can't start new thread", "Resource temporarily unavailable")
SHARED_MEMORY_FULL = ("shared memory", "torch_shm_manager")


@contextmanager
def translate_resource_errors() -> Iterator[None]:
    """Turns errors of the machine into messages for users.

    Raises:
        UserError: a loading process died, or memory, processes or open files are not enough; names
            the option.
    """
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        message = _describe(error)
        if message is None:
            raise
        raise UserError(
            f"{message}; what was saved before is intact, and the same command continues"
        ) from error


def _describe(error: Exception) -> str | None:
    """Returns option and remedy of an error of the machine; None for another one."""
    if isinstance(error, torch.OutOfMemoryError):
        return (
            "data.eval_batch_size: so many images, or their embeddings, do not fit into the "
            "GPU's memory; try fewer, or precision=bf16"
        )
    number = None
    if isinstance(error, OSError):
        number = error.errno
        if number in STORAGE_LOST:
            return f"{error.filename or 'outputs'}: {error.strerror}; repair or mount its storage"
    text = str(error)
    if text.startswith(DEAD_WORKER):
        return _describe_death(text)
    limit = _describe_limit(number, text)
    if limit is not None:
        return limit
    if is_out_of_memory(error) or number == errno.ENOMEM:
        return (
            "data.workers: the machine's memory is full; try fewer, a smaller "
            "data.eval_batch_size, or a smaller data.batch_size"
        )
    return None


def _describe_death(text: str) -> str:
    """Returns the message for one of torch's about a loading process that died."""
    reason = re.sub(r"DataLoader worker (\(pid(\(s\))? [\d, ]*\) )?|[.\n].*", "", text)
    message = (
        f"data.workers: a loading process died ({reason}); where memory is short, fewer of "
        f"them need less"
    )
    if "Bus error" in reason:
        message += f", and docker run --shm-size=1g gives more ({_shared_memory()})"
    return message


def _describe_limit(number: int | None, text: str) -> str | None:
    """Returns option and remedy where a limit of the system is reached; None for another error.

    Args:
        number: of the error (`errno`); None if it is missing.
        text: of the error.
    """
    if number in (errno.EMFILE, errno.ENFILE) or _has(text, TOO_MANY_FILES):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return (
            f"data.workers: too many open files (ulimit -n is {limit}); raise it, such as by "
            f"ulimit -n 4096, or take fewer loading processes"
        )
    if number == errno.EAGAIN or _has(text, TOO_MANY_PROCESSES):
        return (
            "data.workers: the system starts no further process or thread (ulimit -u, or the limit "
            "of the container); take fewer of data.workers and protocol.workers, or set "
            "OMP_NUM_THREADS=1"
        )
    if _has(text, SHARED_MEMORY_FULL):
        return (
            f"data.workers: the shared memory of loading processes is full ({_shared_memory()}); "
            f"enlarge it (docker run --shm-size=1g), take fewer, or data.workers=0"
        )
    return None


def _has(text: str, parts: tuple[str, ...]) -> bool:
    return any(part in text for part in parts)


def _shared_memory() -> str:
    """Returns `/dev/shm has 64 MB`, as far as the system tells."""
    with suppress(OSError):
        total = shutil.disk_usage(SHARED_MEMORY).total
        return f"{SHARED_MEMORY} has {total / 1e6:.3g} MB"
    return SHARED_MEMORY
