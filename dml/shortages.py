"""What a machine runs out of while it trains or embeds, told in the user's terms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dml.errors import UserError

GOES_ON = "what was saved before is intact, and the same command continues"
# How torch's exceptions of no class of their own begin.
DEAD_WORKER = "DataLoader worker"
NO_HOST_MEMORY = ("DefaultCPUAllocator", "Cannot allocate memory", "std::bad_alloc")


@contextmanager
def shortages_told() -> Iterator[None]:
    """Turns exceptions that say what the machine lacks into errors that say which option helps.

    A signal handler of torch tells that a loading process died, so that the exception may come at
    any moment, in the middle of a step or of an evaluation.

    Raises:
        UserError: a loading process died, or there is not enough memory.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(
            "data.eval_batch_size: so many images, or their embeddings, do not fit into the GPU's "
            f"memory; try fewer, or precision=bf16; {GOES_ON}"
        ) from error
    except MemoryError as error:
        raise _no_host_memory() from error
    except RuntimeError as error:
        text = str(error)
        if text.startswith(DEAD_WORKER):
            raise UserError(
                f"data.workers: a loading process died ({_reason(text)}); where memory is short, "
                f"fewer of them need less; {GOES_ON}"
            ) from error
        if any(sign in text for sign in NO_HOST_MEMORY):
            raise _no_host_memory() from error
        raise


def _no_host_memory() -> UserError:
    return UserError(
        "data.workers: the machine's memory is full; try fewer, a smaller data.eval_batch_size, or "
        f"a smaller data.batch_size; {GOES_ON}"
    )


def _reason(text: str) -> str:
    """Of "DataLoader worker (pid 7) is killed by signal: Killed. …" what follows the number."""
    first = text.splitlines()[0].partition(") ")[2] or text.splitlines()[0]
    return first.partition(". ")[0].rstrip(". ")
