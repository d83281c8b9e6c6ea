"""Checks of what a loss is given, with errors that name the argument.

Shapes: B images in a batch, D embedding dimensions, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from typing import SupportsFloat

import torch
from torch import Tensor, nn


def to_working_precision(x: Tensor) -> Tensor:
    """Returns half precision as float32; float32 and float64 stay as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def refuse_arguments(loss: nn.Module, **arguments: object) -> None:
    """Raises ValueError for the first argument that is not None, since `loss` cannot use any."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} must be None: {type(loss).__name__} cannot use it")


class ValueChecks:
    """Checks of values on the device, which are read together: each reading waits for a GPU."""

    def __init__(self) -> None:
        self._wrong: list[Tensor] = []
        self._refusals: list[Callable[[], None]] = []

    def add(self, wrong: Tensor, refuse: Callable[[], None]) -> None:
        """Adds a flag (a scalar), and a function that raises ValueError if the flag is set."""
        self._wrong.append(wrong)
        self._refusals.append(refuse)

    def read(self) -> None:
        """Raises ValueError for the first flag that is set."""
        if not self._wrong:
            return
        device = self._wrong[0].device
        flags = torch.stack([wrong.to(device) for wrong in self._wrong]).tolist()
        for wrong, refuse in zip(flags, self._refusals, strict=True):
            if wrong:
                refuse()


def check_batch(
    embeddings: Tensor,
    labels: Tensor,
    checks: ValueChecks,
    num_classes: int | None = None,
    embedding_size: int | None = None,
    names: tuple[str, str] = ("embeddings", "labels"),
) -> Tensor:
    """Returns the labels as int64 beside the embeddings.

    Raises ValueError unless these are B×D embeddings with B integer labels. That embeddings are
    finite and labels in 0..C−1 is added to `checks`.
    """
    x, y = names
    for name, value in zip(names, (embeddings, labels), strict=True):
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(value).__name__}")
    if embeddings.ndim != 2 or 0 in embeddings.shape or not embeddings.is_floating_point():
        raise ValueError(
            f"{x} must be a matrix of floating-point numbers, got {describe_tensor(embeddings)}"
        )
    if embedding_size is not None and embeddings.shape[1] != embedding_size:
        raise ValueError(
            f"{x} must have {embedding_size} columns (the embedding_size), "
            f"got {describe_tensor(embeddings)}"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"{y} must be integers, got {labels.dtype}")
    if labels.shape != embeddings.shape[:1]:
        raise ValueError(
            f"{y} must hold one label for each of the {len(embeddings)} {x}, "
            f"got {describe_tensor(labels)}"
        )
    labels = labels.to(embeddings.device, torch.long)  # torch cannot compare unsigned types
    if not reads_values(embeddings):
        return labels
    outside = labels < 0 if num_classes is None else (labels < 0) | (labels >= num_classes)
    # a sum shows NaN and infinity at a tenth of the cost of checking every number
    total = to_working_precision(embeddings.detach()).sum()

    def refuse_embeddings() -> None:
        if not embeddings.isfinite().all():  # else the sum has overflowed
            raise ValueError(f"{x} must be finite, got NaN or infinity")

    def refuse_labels() -> None:
        bound = "at least 0" if num_classes is None else f"in 0..{num_classes - 1}"
        raise ValueError(f"{y} must be {bound}, got {int(labels.min())}..{int(labels.max())}")

    checks.add(total.isfinite().logical_not(), refuse_embeddings)
    checks.add(outside.any(), refuse_labels)
    return labels


def check_self_index(
    self_index: Tensor, anchors: int, references: int, like: Tensor, checks: ValueChecks
) -> Tensor:
    """Returns `self_index` as int64 on the device of `like`.

    Raises ValueError unless it holds an integer per anchor. That these lie from −1 to
    `references` − 1 is added to `checks`.
    """
    if not isinstance(self_index, Tensor) or self_index.shape != (anchors,):
        raise ValueError(f"self_index must be a tensor of {anchors} positions, one per embedding")
    if self_index.is_floating_point() or self_index.is_complex() or self_index.dtype == torch.bool:
        raise ValueError(f"self_index must be integers, got {self_index.dtype}")
    self_index = self_index.to(like.device, torch.long)
    if not reads_values(like):
        return self_index

    def refuse() -> None:
        raise ValueError(f"self_index must be in -1..{references - 1}")

    checks.add(((self_index < -1) | (self_index >= references)).any(), refuse)
    return self_index


def reads_values(x: Tensor) -> bool:
    """Returns False where the values of a tensor are not known: in `torch.compile`, CUDA graphs."""
    capturing = x.is_cuda and torch.cuda.is_current_stream_capturing()
    return not (torch.compiler.is_compiling() or capturing)


def describe_tensor(x: Tensor) -> str:
    """Returns shape and type for a message, as in `4x512 float32`."""
    shape = "x".join(str(size) for size in x.shape) or "scalar"
    return f"{shape} {str(x.dtype).removeprefix('torch.')}"


def check_integer(name: str, value: int, at_least: int) -> int:
    """Returns `value` as an int; raises ValueError unless it is an integer of at least `at_least`.

    NumPy integers are accepted, booleans are not.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"{name} must be an integer of at least {at_least}, got {value!r}")
    return int(value)


def check_finite(name: str, value: float) -> float:
    """Returns `value` as a float; raises ValueError unless it is a finite number."""
    if not isinstance(value, SupportsFloat) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def check_positive(name: str, value: float) -> float:
    """Returns `value` as a float; raises ValueError unless it is finite and above 0."""
    if not check_finite(name, value) > 0:
        raise ValueError(f"{name} must be above 0, got {value!r}")
    return float(value)


def check_non_negative(name: str, value: float) -> float:
    """Returns `value` as a float; raises ValueError unless it is finite and at least 0."""
    if not check_finite(name, value) >= 0:
        raise ValueError(f"{name} must be at least 0, got {value!r}")
    return float(value)


def check_one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Returns `value`; raises ValueError unless it is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    return value
