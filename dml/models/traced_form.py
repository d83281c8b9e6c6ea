"""The forms of a network that other programs run: ONNX, and a program of `torch.export`.

The trace of a network whose Python code depends on the size of the image, such as one that halves
large images first, holds for the branch that was taken. Height and width are therefore left free
only if the traced network agrees with PyTorch at smaller, larger and oblong images too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dml.core.errors import UserError, first_line

BATCHES = (1, 2, 7)
FEW = (2,)  # batches of other sizes
LEAST, MOST = 4, 1024  # pixels of other sizes
TOLERANCE = 1e-5  # largest difference of an embedding's values between a form and PyTorch
INPUT, OUTPUT = "images", "embeddings"
BATCH, HEIGHT, WIDTH = "batch", "height", "width"  # names of axes


class _Traced(NamedTuple):
    """A traced network, and the function B×3×H×W → B×D by which it is called."""

    program: Any
    call: Callable[[Tensor], Tensor]


class TracedForm(NamedTuple):
    """A form of a network.

    Attributes:
        program: as `torch.onnx.export` or `torch.export.export` returns it.
        difference: largest one from PyTorch's embeddings, at all batches and sizes that were tried.
        is_free: whether it takes images of other sizes.
    """

    program: Any
    difference: float
    is_free: bool


def make_onnx(network: nn.Module, height: int, width: int, may_be_free: bool) -> TracedForm:
    """Returns the ONNX form of a network, with input `images` and output `embeddings`.

    The first axis of both is named `batch`, free axes of images `height` and `width`.

    Args:
        network: in evaluation mode, images B×3×H×W → embeddings B×D.
        height, width: of its images.
        may_be_free: whether images of other sizes should be possible.

    Raises:
        UserError: a package is missing, the network has no such form, or its embeddings differ.
    """
    return _make(_trace_onnx, "onnx", network, height, width, may_be_free)


def make_exported(network: nn.Module, height: int, width: int, may_be_free: bool) -> TracedForm:
    """Returns the program of `torch.export` for a network; see `make_onnx`.

    Raises:
        UserError: the network has no such form, or its embeddings differ.
    """
    return _make(_trace_exported, "torch_export", network, height, width, may_be_free)


def _make(
    trace: Callable[[nn.Module, int, int, bool], _Traced],
    option: str,
    network: nn.Module,
    height: int,
    width: int,
    may_be_free: bool,
) -> TracedForm:
    if may_be_free:
        try:
            traced = trace(network, height, width, True)
            difference = _difference(traced, network, height, width, BATCHES)
            others = _other_sizes(height, width)
            for size in others:
                difference = max(difference, _difference(traced, network, *size, FEW))
            agrees = difference <= TOLERANCE and len(others) > 1
        except ImportError as error:
            raise _missing(error) from error
        except Exception:  # of many classes: there is no form for all sizes
            agrees = False
        if agrees:
            return TracedForm(traced.program, difference, True)
    try:
        traced = trace(network, height, width, False)
        difference = _difference(traced, network, height, width, BATCHES)
    except ImportError as error:
        raise _missing(error) from error
    except Exception as error:  # of many classes, of torch and of its converter
        raise UserError(f"{option}: this network has no such form: {first_line(error)}") from error
    if not difference <= TOLERANCE:
        raise UserError(
            f"{option}: differs from PyTorch by {difference:.1e} > {TOLERANCE} on images of "
            f"{height}x{width} pixels"
        )
    return TracedForm(traced.program, difference, False)


def _missing(error: ImportError) -> UserError:
    return UserError(f"onnx: {error}: pip install onnx onnxscript onnxruntime")


def _trace_onnx(network: nn.Module, height: int, width: int, is_free: bool) -> _Traced:
    axes = {0: BATCH, 2: HEIGHT, 3: WIDTH} if is_free else {0: BATCH}
    options: dict[str, Any] = {"input_names": [INPUT], "output_names": [OUTPUT]}
    options |= {"dynamic_shapes": (axes,), "dynamo": True, "verbose": False}
    with warnings.catch_warnings():
        # where height and width must be equal, one name is left
        warnings.filterwarnings("ignore", message=".*axis name", category=UserWarning)
        program: Any = torch.onnx.export(network, (torch.rand(2, 3, height, width),), **options)
    return _Traced(program, lambda images: program(images)[0])


def _trace_exported(network: nn.Module, height: int, width: int, is_free: bool) -> _Traced:
    auto = torch.export.Dim.AUTO
    axes: dict[int, Any] = {0: torch.export.Dim(BATCH)}
    if is_free:
        axes |= {2: auto, 3: auto}
    images = torch.rand(2, 3, height, width)
    program = torch.export.export(network, (images,), dynamic_shapes=(axes,))
    return _Traced(program, program.module())


def _other_sizes(height: int, width: int) -> list[tuple[int, int]]:
    """Returns a half, twice, four times, and two oblong images: around most branches on the size.

    Sizes that a network may not accept, or that need much memory, are left out.
    """
    sizes = [(height // 2, width // 2), (2 * height, 2 * width), (4 * height, 4 * width)]
    sizes += [(height, 3 * width), (3 * height, width)]
    return [size for size in sizes if min(size) >= LEAST and max(size) <= MOST]


def _difference(
    traced: _Traced, network: nn.Module, height: int, width: int, batches: Sequence[int]
) -> float:
    """Returns the largest difference of an embedding's values; infinity for NaN or other shapes."""
    largest = 0.0
    images = torch.rand(max(batches), 3, height, width)
    for count in batches:
        with torch.inference_mode():
            expected: Tensor = network(images[:count])
            computed = traced.call(images[:count])
        if computed.shape != expected.shape:
            return math.inf
        difference = float((computed - expected).abs().max())
        if math.isnan(difference):
            return math.inf
        largest = max(largest, difference)
    return largest
