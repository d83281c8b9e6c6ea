"""Errors of the machine, such as a lack of memory, as messages for users."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dml.core.errors import UserError, is_out_of_memory
from dml.data.loaders import DEAD_WORKER


@contextmanager
def translate_resource_errors() -> Iterator[None]:
    """Turns errors of the machine into messages for users.

    Raises:
        UserError: a loading process died, or there is not enough memory; names the option.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = str(error)
        if isinstance(error, torch.OutOfMemoryError):
            message = (
                "data.eval_batch_size: so many images, or their embeddings, do not fit into the "
                "GPU's memory; try fewer, or precision=bf16"
            )
        elif text.startswith(DEAD_WORKER):
            reason = re.sub(r"DataLoader worker (\(pid(\(s\))? [\d, ]*\) )?|[.\n].*", "", text)
            message = (
                f"data.workers: a loading process died ({reason}); where memory is short, fewer of "
                f"them need less"
            )
        elif is_out_of_memory(error):
            message = (
                "data.workers: the machine's memory is full; try fewer, a smaller "
                "data.eval_batch_size, or a smaller data.batch_size"
            )
        else:
            raise
        raise UserError(
            f"{message}; what was saved before is intact, and the same command continues"
        ) from error
