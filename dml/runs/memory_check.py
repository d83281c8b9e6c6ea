"""The memory that a training run needs for embeddings and weights, before it begins.

Linux ends a process that takes more memory than there is, without a message.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.nn.parameter import is_lazy

from dml.core.errors import UserError
from dml.core.memory import available_memory
from dml.data.protocol import Job

NUMBER_BYTES = 4
COPIES = 3  # of embeddings: of the present, the untrained and the best network
OF_WEIGHTS = 3  # in addition to the weights: gradients and the two moments of Adam
GB = 1e9


def check_memory(job: Job, embedding_size: int, embedder: nn.Module, method: nn.Module) -> None:
    """Checks that embeddings and the state of the optimizer fit into the memory that is free.

    Args:
        job: the images that are scored.
        embedding_size: D.
        embedder: the network.
        method: with the loss, on the same device. Weights on a GPU do not count: that refuses too
            many by itself.

    Raises:
        UserError: they do not fit; the message names the larger part.
    """
    free = available_memory()
    if not free:  # it is not known
        return
    images = max(map(len, (*job.test.subsets, *job.validation.subsets)))
    embeddings = COPIES * NUMBER_BYTES * images * embedding_size
    of_network, of_loss = _state_bytes(embedder.parameters()), _state_bytes(method.parameters())
    needed = embeddings + of_network + of_loss
    if needed <= free:
        return
    needs = f"training needs {needed / GB:,.1f} GB more, {free / GB:,.1f} GB are free"
    if embeddings >= of_loss:
        raise UserError(
            f"embedder.size: {needs}: {embeddings / GB:,.1f} GB for {COPIES} times "
            f"{images:,} x {embedding_size} embeddings of images that are scored; choose a smaller "
            f"size, or score fewer images"
        )
    raise UserError(
        f"loss: {needs}: {of_loss / GB:,.1f} GB for the gradients and moments of its weights, with "
        f"{job.train.num_classes:,} classes; choose a smaller embedder.size, or a loss of pairs, "
        f"such as loss=ms"
    )


def _state_bytes(parameters: Iterable[nn.Parameter]) -> int:
    """Returns the bytes that training adds to weights in the memory of this machine."""
    total = 0
    for weights in parameters:
        if is_lazy(weights):  # the dry run refuses it
            continue
        if weights.requires_grad and weights.device.type == "cpu":
            total += OF_WEIGHTS * weights.numel() * weights.element_size()
    return total
