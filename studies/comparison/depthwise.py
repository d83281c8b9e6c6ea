"""Weight gradients of depthwise convolutions of small maps, on processors without AVX-512.

There oneDNN took 35 to 95 ms for those of a layer of EfficientNet-Lite0 with 4×4 or 2×2 values,
and half of the time of a step. Here they took 1 to 6. The mathematics is the same; sums are rounded
in another order, as they are on every other processor.

Shapes: B images, C channels, H×W values of an output, k×k weights of a channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.grad import conv2d_input

MOST_VALUES = 16  # H·W; oneDNN is faster for larger maps
WITHOUT_AVX512 = ("AVX2", "DEFAULT")  # of x86 processors


def is_slow_processor() -> bool:
    """Returns whether oneDNN has no fast kernel on this processor."""
    return torch.backends.cpu.get_cpu_capability() in WITHOUT_AVX512


@contextmanager
def faster_depthwise() -> Iterator[None]:
    """Computes the weight gradients of small depthwise convolutions here, where that is faster."""
    if not is_slow_processor():
        yield
        return
    usual = nn.Conv2d._conv_forward

    def forward(self: nn.Conv2d, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not _is_small_depthwise(self, input):
            return usual(self, input, weight, bias)
        output = DepthwiseConvolution.apply(input, weight, self.stride, self.padding)
        return output if bias is None else output + bias[:, None, None]

    with mock.patch.object(nn.Conv2d, "_conv_forward", forward):
        yield


def _is_small_depthwise(layer: nn.Conv2d, input: Tensor) -> bool:
    is_depthwise = layer.groups == layer.in_channels == layer.out_channels > 1
    is_plain = layer.padding_mode == "zeros" and layer.dilation == (1, 1)
    if not is_depthwise or not is_plain or isinstance(layer.padding, str):
        return False
    is_float32 = input.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    if input.ndim != 4 or input.device.type != "cpu" or not is_float32:
        return False
    height, width = (
        (input.shape[2 + axis] + 2 * layer.padding[axis] - layer.kernel_size[axis])
        // layer.stride[axis]
        + 1
        for axis in (0, 1)
    )
    return height * width <= MOST_VALUES


class DepthwiseConvolution(torch.autograd.Function):
    """A depthwise convolution without bias, of B×C×·×· values by C×1×k×k weights."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]
    ) -> Tensor:
        """Returns the output (B×C×H×W)."""
        ctx.save_for_backward(input, weight)
        ctx.stride, ctx.padding = stride, padding
        return F.conv2d(input, weight, None, stride, padding, 1, len(weight))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Returns the gradients of input and weight, if they are needed."""
        input, weight = ctx.saved_tensors
        gradient, (needs_input, needs_weight, *_) = gradients[0], ctx.needs_input_grad
        of_input = of_weight = None
        if needs_input:
            of_input = conv2d_input(
                input.shape, weight, gradient, ctx.stride, ctx.padding, 1, len(weight)
            )
        if needs_weight:
            of_weight = weight_gradient(input, gradient, weight, ctx.stride, ctx.padding)
        return of_input, of_weight, None, None


def weight_gradient(
    input: Tensor,
    gradient: Tensor,
    weight: Tensor,
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> Tensor:
    """Returns the gradient of the weights: Σ_{b,y,x} gradient[b,c,y,x]·input[b,c,sy+i−p,sx+j−p].

    Args:
        input: B×C×·×·.
        gradient: of the output (B×C×H×W).
        weight: C×1×k×k.
        stride, padding: s and p of rows and columns.
    """
    overlaps = []
    for axis in (0, 1):
        size, outputs = input.shape[2 + axis], gradient.shape[2 + axis]
        of_axis = []
        for tap in range(weight.shape[2 + axis]):
            of_axis.append(_overlap(tap, size, outputs, stride[axis], padding[axis]))
        overlaps.append(of_axis)
    rows, columns = overlaps
    result = torch.zeros_like(weight)
    for i, (output_rows, input_rows) in enumerate(rows):
        for j, (output_columns, input_columns) in enumerate(columns):
            part = gradient[:, :, output_rows, output_columns]
            seen = input[:, :, input_rows, input_columns]
            result[:, 0, i, j] = (part * seen).sum((0, 2, 3))
    return result


def _overlap(tap: int, size: int, outputs: int, stride: int, padding: int) -> tuple[slice, slice]:
    """Returns the outputs to which a weight brings values of the input, and these values.

    Args:
        tap: row or column of the weight.
        size, outputs: rows or columns of input and output.
    """
    first = max(0, -((tap - padding) // stride))
    last = min(outputs - 1, (size - 1 + padding - tap) // stride)
    if last < first:
        return slice(0, 0), slice(0, 0)
    start = first * stride + tap - padding
    stop = last * stride + tap - padding + 1
    return slice(first, last + 1), slice(start, stop, stride)
