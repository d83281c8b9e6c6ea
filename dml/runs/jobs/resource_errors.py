"""Error messages for users when a machine runs out of memory, or a loading process dies."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from dml.core.errors import UserError
from dml.data.loading_processes import DEAD_WORKER

P = ParamSpec("P")
T = TypeVar("T")

CONTINUES = "what was saved before is intact, and the same command continues"
# The beginnings of torch's exceptions that have no class of their own.
NO_HOST_MEMORY = ("DefaultCPUAllocator", "Cannot allocate memory", "std::bad_alloc")


def translate_resource_errors(function: Callable[P, T]) -> Callable[P, T]:
    """Makes a function turn such exceptions into errors that name the option that helps.

    Raises:
        UserError: a loading process died, or there is not enough memory.
    """

    @wraps(function)
    def translating(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except Exception as error:
            translated = _translate(error)
            _free_frames(error, drop=isinstance(translated or error, UserError))
            if translated is None:
                raise
            raise translated from error

    return translating


def _translate(error: Exception) -> UserError | None:
    text = str(error)
    if isinstance(error, torch.OutOfMemoryError):
        return UserError(
            "data.eval_batch_size: so many images, or their embeddings, do not fit into the GPU's "
            f"memory; try fewer, or precision=bf16; {CONTINUES}"
        )
    if isinstance(error, RuntimeError) and text.startswith(DEAD_WORKER):
        return UserError(
            f"data.workers: a loading process died ({_reason(text)}); where memory is short, "
            f"fewer of them need less; {CONTINUES}"
        )
    no_memory = isinstance(error, RuntimeError) and any(sign in text for sign in NO_HOST_MEMORY)
    if isinstance(error, MemoryError) or no_memory:
        return UserError(
            "data.workers: the machine's memory is full; try fewer, a smaller "
            f"data.eval_batch_size, or a smaller data.batch_size; {CONTINUES}"
        )
    return None


def _free_frames(error: BaseException, drop: bool) -> None:
    """Frees what the failed functions held, since a multirun keeps its errors until it ends.

    Loading processes end with the last object that holds them, and so does a GPU's memory. A
    cleared frame of a lambda still holds what the lambda captured; of errors whose message says
    all, the tracebacks are dropped.
    """
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()  # causes and contexts may form a cycle
    while pending:
        current = pending.pop()
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            traceback.clear_frames(current.__traceback__)
            if drop:
                current.__traceback__ = None
            pending += [current.__cause__, current.__context__]


def _reason(text: str) -> str:
    """The text after the number in "DataLoader worker (pid 7) is killed by signal: Killed. …"."""
    match = re.match(r"DataLoader worker (?:\(pid(?:\(s\))? [\d, ]*\) )?([^.\n]*)", text)
    return match[1] if match else text.splitlines()[0]
