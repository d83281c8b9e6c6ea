"""What the losses of this package share: calling convention, argument checks, precision.

Shapes: B images in a batch, D embedding dimensions, C classes, R references.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any, SupportsFloat

import torch
from torch import Tensor, nn


class MetricLoss(nn.Module):
    """A loss called as `loss(embeddings, labels, indices_tuple, ref_emb, ref_labels) -> scalar`.

    This is the convention of pytorch-metric-learning, so that the losses of both work in the code
    of both. Losses compute with autocast off: half precision is raised to float32, float64 stays.
    Embeddings and labels are checked; inside `torch.compile` and while a CUDA graph is captured
    only their shapes and types are, because looking at values would wait for the device.
    """

    def without_autocast(self, embeddings: Tensor) -> torch.autocast:
        """Returns the context in which a loss computes."""
        return torch.autocast(device_type=embeddings.device.type, enabled=False)


class ClassificationLoss(MetricLoss):
    """A loss against learnable vectors, one or several a class; needs one image of a class.

    Args:
        num_classes: C, at least 1; labels are 0..C−1.
        embedding_size: D, at least 1.
    """

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__()
        self.num_classes = integer("num_classes", num_classes, at_least=1)
        self.embedding_size = integer("embedding_size", embedding_size, at_least=1)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Any = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss of a batch as a scalar.

        Args:
            embeddings: B×D, finite; need not be normalized.
            labels: B integers from 0 to C−1.
            indices_tuple: must be None: every image meets every class, there is nothing to mine.
            ref_emb: must be None: the references are this loss's own parameters.
            ref_labels: must be None.

        Raises:
            ValueError: an argument has the wrong shape, type or values; names the argument.
        """
        refuse(self, indices_tuple=indices_tuple, ref_emb=ref_emb, ref_labels=ref_labels)
        labels_B = check_batch(embeddings, labels, self.num_classes, self.embedding_size)
        with self.without_autocast(embeddings):
            return self.batch_loss(working_precision(embeddings), labels_B)

    def batch_loss(self, x_BD: Tensor, labels_B: Tensor) -> Tensor:
        """Returns the loss of checked arguments, float32 or float64."""
        raise NotImplementedError


class PairLoss(MetricLoss):
    """A loss of pairs of embeddings: of a batch among itself, or of a batch and references.

    References (proxies of a method, a memory of past embeddings) come through `ref_emb`. Without
    them a batch refers to itself; whether an image meets itself then is up to the loss.
    """

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Any = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Returns the loss of a batch as a scalar.

        Args:
            embeddings: B×D, finite; need not be normalized.
            labels: B integers of at least 0.
            indices_tuple: must be None: all pairs count.
            ref_emb: R×D references, or None for the batch itself.
            ref_labels: R integers, None if and only if `ref_emb` is.

        Raises:
            ValueError: an argument has the wrong shape, type or values; names the argument.
        """
        refuse(self, indices_tuple=indices_tuple)
        labels_B = check_batch(embeddings, labels)
        with self.without_autocast(embeddings):
            x_BD = working_precision(embeddings)
            if ref_emb is None and ref_labels is None:
                return self.pair_loss(x_BD, labels_B, x_BD, labels_B, among_itself=True)
            if ref_emb is None or ref_labels is None:
                raise ValueError("ref_emb and ref_labels must be given together")
            names = ("ref_emb", "ref_labels")
            labels_R = check_batch(ref_emb, ref_labels, None, embeddings.shape[1], names)
            dtype = torch.promote_types(x_BD.dtype, working_precision(ref_emb).dtype)
            ref_RD, labels_R = ref_emb.to(x_BD.device, dtype), labels_R.to(x_BD.device)
            return self.pair_loss(x_BD.to(dtype), labels_B, ref_RD, labels_R, among_itself=False)

    def pair_loss(
        self, x_BD: Tensor, labels_B: Tensor, ref_RD: Tensor, labels_R: Tensor, among_itself: bool
    ) -> Tensor:
        """Returns the loss of checked arguments, all float32 or all float64.

        `among_itself`: references and batch are the same, so that pairs (i, i) are no pairs.
        """
        raise NotImplementedError


def working_precision(x: Tensor) -> Tensor:
    """Raises half precision to float32; float32 and float64 stay."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def refuse(loss: nn.Module, **arguments: object) -> None:
    """Raises ValueError for the first argument that is given although `loss` cannot use it."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} must be None: {type(loss).__name__} cannot use it")


def check_batch(
    embeddings: Tensor,
    labels: Tensor,
    num_classes: int | None = None,
    embedding_size: int | None = None,
    names: tuple[str, str] = ("embeddings", "labels"),
) -> Tensor:
    """Returns the labels as int64 beside the embeddings.

    Raises ValueError unless these are B×D finite embeddings with B labels in 0..C−1. On a GPU all
    values are looked at together, at the price of one synchronization.
    """
    x, y = names
    for name, value in zip(names, (embeddings, labels), strict=True):
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} must be a tensor, got {type(value).__name__}")
    if embeddings.ndim != 2 or 0 in embeddings.shape or not embeddings.is_floating_point():
        raise ValueError(
            f"{x} must be a matrix of floating-point numbers, got {describe(embeddings)}"
        )
    if embedding_size is not None and embeddings.shape[1] != embedding_size:
        raise ValueError(
            f"{x} must have {embedding_size} columns (the embedding_size), "
            f"got {describe(embeddings)}"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"{y} must be integers, got {labels.dtype}")
    if labels.shape != embeddings.shape[:1]:
        raise ValueError(
            f"{y} must hold one label for each of the {len(embeddings)} {x}, got {describe(labels)}"
        )
    labels = labels.to(embeddings.device, torch.long)  # small and unsigned types cannot compare
    if torch.compiler.is_compiling() or _captures_graph(embeddings):
        return labels
    outside = labels < 0 if num_classes is None else (labels < 0) | (labels >= num_classes)
    # a sum shows NaN and infinity at a tenth of the price of looking at every number
    total = working_precision(embeddings.detach()).sum()
    flags = torch.stack([total.isfinite(), outside.any()])
    sum_is_finite, is_outside = flags.tolist()
    if not sum_is_finite and not embeddings.isfinite().all():  # else it has just overflown
        raise ValueError(f"{x} must be finite, got NaN or infinity")
    if is_outside:
        bound = "at least 0" if num_classes is None else f"in 0..{num_classes - 1}"
        raise ValueError(f"{y} must be {bound}, got {int(labels.min())}..{int(labels.max())}")
    return labels


def _captures_graph(x: Tensor) -> bool:
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def describe(x: Tensor) -> str:
    """Returns shape and type for a message, as in `4x512 float32`."""
    shape = "x".join(str(size) for size in x.shape) or "scalar"
    return f"{shape} {str(x.dtype).removeprefix('torch.')}"


def integer(name: str, value: int, at_least: int) -> int:
    """Returns `value` as an int, or raises ValueError if it is no integer of at least `at_least`.

    NumPy's integers count, booleans do not.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"{name} must be an integer of at least {at_least}, got {value!r}")
    return int(value)


def finite(name: str, value: float) -> float:
    """Returns `value` as a float, or raises ValueError unless it is a finite number."""
    if not isinstance(value, SupportsFloat) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def positive(name: str, value: float) -> float:
    """Returns `value` as a float, or raises ValueError unless it is finite and above 0."""
    if not finite(name, value) > 0:
        raise ValueError(f"{name} must be above 0, got {value!r}")
    return float(value)


def non_negative(name: str, value: float) -> float:
    """Returns `value` as a float, or raises ValueError unless it is finite and at least 0."""
    if not finite(name, value) >= 0:
        raise ValueError(f"{name} must be at least 0, got {value!r}")
    return float(value)


def one_of(name: str, value: str, choices: tuple[str, ...]) -> str:
    """Returns `value`, or raises ValueError unless it is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    return value
