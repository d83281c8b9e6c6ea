"""Checks of embeddings, labels, counts and memory bounds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from dml.core.errors import first_line
from dml.core.memory import available_memory

CPU_MEMORY_MB = 64.0
GPU_MEMORY_MB = 4096.0  # at most, and at most a quarter of the free memory


Numbers = Tensor | NDArray[Any]  # a tensor or a NumPy array


def _as_tensor(values: Numbers) -> Tensor:
    """Returns a tensor that shares an array's memory; nothing writes to it, so it may be read-only.

    Examples are arrays of `numpy.load(…, mmap_mode="r")`, of pandas and of JAX.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writ", UserWarning)
        return torch.as_tensor(values)


def check_embeddings(embeddings: Numbers, name: str) -> Tensor:
    """Returns the embeddings as a tensor in float32 or float64.

    Raises:
        ValueError: the argument, which the message names, is not a floating-point matrix, is empty,
            or is not finite.
    """
    embeddings = _as_tensor(embeddings)
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise ValueError(
            f"{name} must be a floating-point matrix (items by dimensions), got"
            f" {embeddings.dtype} of shape {tuple(embeddings.shape)}"
        )
    if not embeddings.numel():
        raise ValueError(f"{name} is empty: shape {tuple(embeddings.shape)}")
    embeddings = embeddings.detach()
    if embeddings.dtype not in (torch.float32, torch.float64):
        embeddings = embeddings.float()
    # a finite sum proves that all values are finite, without a mask as large as the matrix
    if not math.isfinite(embeddings.sum().item()):
        bad = sum(int((~part.isfinite()).sum()) for part in embeddings.split(4096))
        if bad:
            row = int((~embeddings.isfinite().all(dim=1)).nonzero()[0])
            raise ValueError(
                f"{name}: {bad} of {embeddings.numel()} values are NaN or infinite, first in row "
                f"{row} (from 0)"
            )
    return embeddings


def check_labels(labels: Numbers, length: int, name: str) -> Tensor:
    """Returns the labels as a tensor.

    Raises:
        ValueError: they are not `length` integers below 2⁶³; the message names the argument.
    """
    try:
        labels = _as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} must be integers ({first_line(error)})") from error
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"{name} must be integers, got {labels.dtype}")
    if labels.shape != (length,):
        raise ValueError(
            f"{name} must have shape ({length},) like its embeddings, got {tuple(labels.shape)}"
        )
    if labels.dtype == torch.uint64:
        labels = labels.long()
        if (labels < 0).any():  # it would equal a negative label
            raise ValueError(f"{name} must be below 2**63; number the classes from 0")
    return labels


def check_labeled(
    embeddings: Numbers,
    labels: Numbers,
    gallery_embeddings: Numbers | None,
    gallery_labels: Numbers | None,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Returns queries, gallery or None, and the classes 0..C−1 of queries (B) and gallery (N).

    Raises:
        ValueError: embeddings or labels are invalid, or only one of the gallery's is given.
    """
    query = check_embeddings(embeddings, "embeddings")
    labels = check_labels(labels, len(query), "labels").to(query.device)
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise ValueError("gallery_embeddings and gallery_labels must be given together")
    if gallery_embeddings is None or gallery_labels is None:
        classes = labels.unique(return_inverse=True)[1]
        return query, None, classes, classes
    gallery = check_embeddings(gallery_embeddings, "gallery_embeddings")
    searched = check_labels(gallery_labels, len(gallery), "gallery_labels").to(query.device)
    classes = torch.cat([labels.long(), searched.long()]).unique(return_inverse=True)[1]
    return query, gallery, classes[: len(query)], classes[len(query) :]


def check_self_index(self_index: Numbers, query_B: Tensor, gallery_N: Tensor) -> Tensor:
    """Returns the positions of queries in the gallery as int64, −1 for queries not in the gallery.

    Args:
        self_index: B positions.
        query_B: classes of the queries.
        gallery_N: classes of the gallery, numbered as those of the queries.

    Raises:
        ValueError: not B integers from −1 to N − 1, or an item of another class.
    """
    checked = check_labels(self_index, len(query_B), "self_index").to(query_B.device, torch.long)
    if ((checked < -1) | (checked >= len(gallery_N))).any():
        raise ValueError(f"self_index must lie between -1 and {len(gallery_N) - 1}")
    wrong_B = (checked >= 0) & (gallery_N[checked.clamp(min=0)] != query_B)
    if wrong_B.any():  # the number of relevant items would be wrong
        query = int(wrong_B.nonzero()[0])
        raise ValueError(
            f"self_index: query {query} has another class than item {int(checked[query])} of the"
            f" gallery, which is said to be the same"
        )
    return checked


def check_counts(numbers: Sequence[int], name: str) -> None:
    """Raises ValueError unless all numbers are positive integers; `name` is for the message."""
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 1:
            raise ValueError(f"{name} must be a positive integer, got {number!r}")


def check_one_dimension(first: Tensor, second: Tensor, names: str) -> None:
    """Raises ValueError unless two matrices have equal widths; `names` is for the message."""
    if first.shape[1] != second.shape[1]:
        raise ValueError(
            f"{names} must have one dimension, got {first.shape[1]} and {second.shape[1]}"
        )


def table_memory(memory_mb: float | None, gallery: Tensor) -> int:
    """Returns the bound on a table of all candidates of a gallery that is searched in itself.

    The table halves the product. By default it may be twice as large as the gallery in float32, if
    an eighth of the free memory holds it.

    Args:
        memory_mb: see `working_memory`.
        gallery: N×D.
    """
    memory_bytes = working_memory(memory_mb, gallery.device)
    if memory_mb is not None or gallery.device.type != "cpu":
        return memory_bytes
    return max(memory_bytes, min(8 * gallery.numel(), available_memory() // 8))


def working_memory(memory_mb: float | None, device: torch.device) -> int:
    """Returns the bound on working buffers in bytes; None: the default for the device.

    Raises:
        ValueError: `memory_mb` is not above 0 or not finite.
    """
    if memory_mb is None:
        memory_mb = CPU_MEMORY_MB
        if device.type == "cuda":
            unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
            free = (torch.cuda.mem_get_info(device)[0] + unused) / 2**20
            memory_mb = max(CPU_MEMORY_MB, min(free / 4, GPU_MEMORY_MB))
    if not 0 < memory_mb < math.inf:
        raise ValueError(f"memory_mb must be above 0 and finite, got {memory_mb}")
    return int(memory_mb * 2**20)
