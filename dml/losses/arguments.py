"""Checks of the arguments of losses, with errors that name the argument.

Shapes: B images in a batch, D embedding dimensions, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

READ_EVERY = 50  # batches on a GPU


def to_working_precision(x: Tensor) -> Tensor:
    """Returns half precision as float32; float32 and float64 unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def refuse_arguments(loss: nn.Module, **arguments: object) -> None:
    """Raises ValueError for the first argument that is not None, which `loss` cannot use."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} must be None: {type(loss).__name__} cannot use it")


Check = tuple[Tensor, Callable[[], str]]  # a flag (a scalar tensor), and what a set one means


@dataclass
class _Unread:
    """Checks on a GPU that a loss has not read yet, and the number of its calls."""

    checks: list[Check] = field(default_factory=list)
    calls: int = 0


# Of each loss, so that a training that failed leaves nothing to the next one.
_unread_checks: WeakKeyDictionary[nn.Module, _Unread] = WeakKeyDictionary()


class ValueChecks:
    """Checks of the values of a batch, which are read together.

    Reading waits for a GPU. There it is done at the first call of a loss and at every 50th, for all
    batches since then: until then, wrong positions and labels are clamped.

    Args:
        loss: that gets the batch.
    """

    def __init__(self, loss: nn.Module) -> None:
        self._loss = loss
        self._checks: list[Check] = []

    def add(self, wrong: Tensor, message: Callable[[], str]) -> None:
        """Adds a flag (a scalar tensor), and a function that returns the message if it is set."""
        self._checks.append((wrong, message))

    def read(self) -> None:
        """Raises ValueError for the first flag that is set."""
        if not self._checks:
            return
        checks = self._checks
        if checks[0][0].is_cuda:
            unread = _unread_checks.setdefault(self._loss, _Unread())
            unread.checks += checks
            unread.calls += 1
            is_due = unread.calls % READ_EVERY == 1
            if not is_due:
                return
            checks, unread.checks = unread.checks, []
        flags = torch.stack([wrong for wrong, _ in checks]).tolist()
        for wrong, (_, message) in zip(flags, checks, strict=True):
            if wrong:
                raise ValueError(message())


def check_batch(
    embeddings: Tensor,
    labels: Tensor,
    checks: ValueChecks,
    num_classes: int | None = None,
    embedding_size: int | None = None,
    device: torch.device | None = None,
    names: tuple[str, str] = ("embeddings", "labels"),
) -> tuple[Tensor, Tensor]:
    """Returns embeddings of at least float32, and labels as int64, on one device.

    Raises ValueError unless these are B×D embeddings with B labels. Adds the checks of their values
    (finite embeddings, labels in 0..C−1) to `checks`.
    """
    x, y = names
    _check_shapes(embeddings, labels, embedding_size, names)
    embeddings = to_working_precision(embeddings.to(device or embeddings.device))
    labels = labels.to(embeddings.device, torch.long)
    if reads_values(embeddings):
        # a sum detects NaN and infinity at a tenth of the cost of checking every value
        total = embeddings.detach().sum(dtype=torch.float64)
        checks.add(~total.isfinite(), lambda: f"{x} must be finite, got NaN or infinity")
        bound = "at least 0" if num_classes is None else f"in 0..{num_classes - 1}"
        outside = labels < 0 if num_classes is None else (labels < 0) | (labels >= num_classes)
        checks.add(
            outside.any(),
            lambda: f"{y} must be {bound}, got {int(labels.min())}..{int(labels.max())}",
        )
        if labels.is_cuda and num_classes is not None:
            return embeddings, labels.clamp(0, num_classes - 1)
    return embeddings, labels


def _check_shapes(
    embeddings: Tensor, labels: Tensor, embedding_size: int | None, names: tuple[str, str]
) -> None:
    x, y = names
    if embeddings.ndim != 2 or 0 in embeddings.shape or not embeddings.is_floating_point():
        got = f"{embeddings.dtype} of shape {tuple(embeddings.shape)}"
        raise ValueError(f"{x} must be a matrix of floating-point numbers, got {got}")
    if embedding_size not in (None, embeddings.shape[1]):
        raise ValueError(
            f"{x} must have {embedding_size} columns (the embedding_size), "
            f"got {embeddings.shape[1]}"
        )
    if labels.shape != embeddings.shape[:1]:
        raise ValueError(
            f"{y} must hold one label for each of the {len(embeddings)} {x}, "
            f"got shape {tuple(labels.shape)}"
        )


def reads_values(x: Tensor) -> bool:
    """Returns whether values can be read: not in `torch.compile` or a captured CUDA graph."""
    capturing = x.is_cuda and torch.cuda.is_current_stream_capturing()
    return not (torch.compiler.is_compiling() or capturing)


def check_integer(name: str, value: int, at_least: int) -> int:
    """Returns `value` as an int; raises ValueError unless it is an integer of at least `at_least`.

    NumPy integers are accepted.
    """
    if not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"{name} must be an integer of at least {at_least}, got {value!r}")
    return int(value)


def check_finite(name: str, value: float) -> float:
    """Returns `value` as a float; raises ValueError unless it is a finite number."""
    if not math.isfinite(value):
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
