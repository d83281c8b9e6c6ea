"""Checks of embeddings, labels, counts and memory bounds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dml.core.class_labels import number_classes
from dml.core.errors import first_line
from dml.core.memory import available_memory

CPU_MEMORY_MB = 64.0
DOUBLE_BYTES = 8  # torch has no longer floating-point numbers
GPU_MEMORY_MB = 4096.0  # at most, and at most a quarter of the free memory


class SupportsArray(Protocol):
    """What NumPy reads as an array, such as a table or a column of pandas."""

    def __array__(self) -> NDArray[Any]: ...

    def __len__(self) -> int: ...


ArrayLike = Tensor | NDArray[Any] | Sequence[Any] | SupportsArray


def _as_array(values: ArrayLike, name: str) -> Tensor | NDArray[Any]:
    """Returns a tensor or an array, without a copy where the values are one.

    Raises:
        ValueError: NumPy does not read the values, such as lists of different lengths.
    """
    if isinstance(values, Tensor):
        return values
    try:
        if not isinstance(values, list | tuple):
            return np.asarray(values)
        if values and all(isinstance(value, Tensor) for value in values):
            return torch.stack(list(values))
        array = np.asarray(values)
        if array.dtype.kind in "US":
            # Of numbers beside texts NumPy makes texts: of a missing label the class "nan".
            return np.asarray(values, dtype=object)
        return array
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} cannot be read as an array ({first_line(error)})") from error


def _as_tensor(array: Tensor | NDArray[Any]) -> Tensor:
    """Returns a tensor that shares an array's memory; nothing writes to it, so it may be read-only.

    Examples are arrays of `numpy.load(…, mmap_mode="r")`, of pandas and of JAX.
    """
    if isinstance(array, Tensor):
        return array
    is_reversed = any(stride < 0 for stride in array.strides)
    if is_reversed or not array.dtype.isnative:  # torch has no such tensors
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writ", UserWarning)
        return torch.as_tensor(array)


def check_embeddings(embeddings: ArrayLike, name: str) -> Tensor:
    """Returns the embeddings as a tensor in float32 or float64.

    Raises:
        ValueError: the argument, which the message names, is not a floating-point matrix, is empty,
            or is not finite.
    """
    array = _as_array(embeddings, name)
    if array.ndim != 2 or not _is_floating_point(array):
        raise ValueError(
            f"{name} must be a floating-point matrix (items by dimensions), got"
            f" {array.dtype} of shape {tuple(array.shape)}"
        )
    embeddings = _as_tensor(array)
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


def _is_floating_point(array: Tensor | NDArray[Any]) -> bool:
    if isinstance(array, Tensor):
        return array.is_floating_point()
    return array.dtype.kind == "f" and array.dtype.itemsize <= DOUBLE_BYTES


def check_labels(labels: ArrayLike, length: int, name: str) -> Tensor:
    """Returns labels as integers: whole numbers as they are, texts numbered in their order.

    Raises:
        ValueError: they are not `length` integers below 2⁶³ or labels that `number_classes`
            accepts; the message names the argument.
    """
    return number_labels({name: (labels, length)})[0]


def number_labels(arrays: Mapping[str, tuple[ArrayLike, int]]) -> list[Tensor]:
    """Returns several arrays of labels as integers; texts that are equal have one number.

    Args:
        arrays: labels and their number, by the name of the argument.

    Raises:
        ValueError: see `check_labels`, or numbers in one array and texts in another.
    """
    parts = {}
    for name, (labels, length) in arrays.items():
        part = _as_array(labels, name)
        if part.shape != (length,):
            raise ValueError(
                f"{name} must have shape ({length},) like its embeddings, got {tuple(part.shape)}"
            )
        parts[name] = part
    if all(_is_integer(part) for part in parts.values()):
        return [_check_range(_as_tensor(part), name) for name, part in parts.items()]
    as_arrays = {name: _as_numpy(part, name) for name, part in parts.items()}
    return [torch.from_numpy(numbers) for numbers in number_classes(as_arrays)]


def _as_numpy(array: Tensor | NDArray[Any], name: str) -> NDArray[Any]:
    """Returns labels as an array; raises ValueError for a type that NumPy lacks, as bfloat16."""
    if not isinstance(array, Tensor):
        return array
    try:
        return array.numpy(force=True)
    except TypeError as error:
        raise ValueError(f"{name}: {array.dtype} cannot name classes; store integers") from error


def _is_integer(array: Tensor | NDArray[Any]) -> bool:
    if isinstance(array, Tensor):
        is_number = array.is_floating_point() or array.is_complex()
        return not is_number and array.dtype != torch.bool
    return array.dtype.kind in "iu"


def _check_range(labels: Tensor, name: str) -> Tensor:
    """Returns labels in a signed type, so that a large one does not equal a negative one."""
    if labels.dtype != torch.uint64:
        return labels
    labels = labels.long()
    if (labels < 0).any():
        raise ValueError(f"{name} must be below 2**63; number the classes from 0")
    return labels


def check_labeled(
    embeddings: ArrayLike,
    labels: ArrayLike,
    gallery_embeddings: ArrayLike | None,
    gallery_labels: ArrayLike | None,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Returns queries, gallery or None, and the classes 0..C−1 of queries (B) and gallery (N).

    Raises:
        ValueError: embeddings or labels are invalid, or only one of the gallery's is given.
    """
    query = check_embeddings(embeddings, "embeddings")
    if (gallery_embeddings is None) != (gallery_labels is None):
        raise ValueError("gallery_embeddings and gallery_labels must be given together")
    if gallery_embeddings is None or gallery_labels is None:
        checked = check_labels(labels, len(query), "labels").to(query.device)
        classes = checked.unique(return_inverse=True)[1]
        return query, None, classes, classes
    gallery = check_embeddings(gallery_embeddings, "gallery_embeddings")
    numbers = number_labels(
        {"labels": (labels, len(query)), "gallery_labels": (gallery_labels, len(gallery))}
    )
    joined = torch.cat([part.to(query.device, torch.long) for part in numbers])
    classes = joined.unique(return_inverse=True)[1]
    return query, gallery, classes[: len(query)], classes[len(query) :]


def check_self_index(self_index: ArrayLike, query_B: Tensor, gallery_N: Tensor) -> Tensor:
    """Returns the positions of queries in the gallery as int64, −1 for queries not in the gallery.

    Args:
        self_index: B positions.
        query_B: classes of the queries.
        gallery_N: classes of the gallery, numbered as those of the queries.

    Raises:
        ValueError: not B integers from −1 to N − 1, or an item of another class.
    """
    positions = _as_array(self_index, "self_index")
    if not _is_integer(positions) or positions.shape != query_B.shape:
        raise ValueError(
            f"self_index must be {len(query_B)} integers, one for each query, got"
            f" {positions.dtype} of shape {tuple(positions.shape)}"
        )
    checked = _check_range(_as_tensor(positions), "self_index").to(query_B.device, torch.long)
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
