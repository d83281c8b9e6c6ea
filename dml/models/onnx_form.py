"""The ONNX form of a network, traced at the size of its images and compared with PyTorch.

The trace of a network whose Python code depends on the size of the image, such as one that halves
large images first, holds for the branch that was taken. Height and width are therefore left free
only if the traced network agrees with PyTorch at smaller, larger and oblong images too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dml.core.errors import UserError, first_line

BATCHES = (1, 2, 7)
FEW = (2,)  # batches of other sizes
LEAST, MOST = 4, 1024  # pixels of other sizes
TOLERANCE = 1e-5  # largest difference of an embedding's values between ONNX Runtime and PyTorch


class OnnxForm(NamedTuple):
    """The ONNX form of a network.

    Attributes:
        program: as `torch.onnx.export` returns it.
        difference: largest one from PyTorch's embeddings, at all batches and sizes that were tried.
        is_free: whether it takes images of other sizes.
    """

    program: Any
    difference: float
    is_free: bool


def make_onnx(network: nn.Module, height: int, width: int, may_be_free: bool) -> OnnxForm:
    """Returns the ONNX form of a network, for any number of images in a batch.

    Args:
        network: in evaluation mode, images B×3×H×W → embeddings.
        height, width: of its images.
        may_be_free: whether images of other sizes should be possible.

    Raises:
        UserError: a package is missing, the network has no such form, or its embeddings differ.
    """
    if may_be_free:
        try:
            program = _trace(network, height, width, is_free=True)
            difference = _difference(program, network, height, width, BATCHES)
            others = _other_sizes(height, width)
            for size in others:
                difference = max(difference, _difference(program, network, *size, FEW))
            agrees = difference <= TOLERANCE and len(others) > 1
        except ImportError as error:
            raise _missing(error) from error
        except Exception:  # of many classes: there is no form for all sizes
            agrees = False
        if agrees:
            return OnnxForm(program, difference, True)
    try:
        program = _trace(network, height, width, is_free=False)
        difference = _difference(program, network, height, width, BATCHES)
    except ImportError as error:
        raise _missing(error) from error
    except Exception as error:  # of many classes, of torch and of its converter
        raise UserError(f"onnx: this network has no ONNX form: {first_line(error)}") from error
    if not difference <= TOLERANCE:
        raise UserError(
            f"onnx: differs from PyTorch by {difference:.1e} > {TOLERANCE} on images of "
            f"{height}x{width} pixels"
        )
    return OnnxForm(program, difference, False)


def _missing(error: ImportError) -> UserError:
    return UserError(f"onnx: {error}: pip install onnx onnxscript onnxruntime")


def _trace(network: nn.Module, height: int, width: int, is_free: bool) -> Any:
    auto = torch.export.Dim.AUTO
    dims = {0: auto, 2: auto, 3: auto} if is_free else {0: auto}
    options: dict[str, Any] = {"input_names": ["images"], "output_names": ["embeddings"]}
    options |= {"dynamic_shapes": (dims,), "dynamo": True, "verbose": False}
    return torch.onnx.export(network, (torch.rand(2, 3, height, width),), **options)


def _other_sizes(height: int, width: int) -> list[tuple[int, int]]:
    """Returns a half, twice, four times, and two oblong images: around most branches on the size.

    Sizes that a network may not accept, or that need much memory, are left out.
    """
    sizes = [(height // 2, width // 2), (2 * height, 2 * width), (4 * height, 4 * width)]
    sizes += [(height, 3 * width), (3 * height, width)]
    return [size for size in sizes if min(size) >= LEAST and max(size) <= MOST]


def _difference(
    program: Any, network: nn.Module, height: int, width: int, batches: Sequence[int]
) -> float:
    """Returns the largest difference of an embedding's values; infinity for NaN or other shapes."""
    largest = 0.0
    images = torch.rand(max(batches), 3, height, width)
    for count in batches:
        with torch.inference_mode():
            expected: Tensor = network(images[:count])
        (computed,) = program(images[:count])
        if computed.shape != expected.shape:
            return math.inf
        difference = float((computed - expected).abs().max())
        if math.isnan(difference):
            return math.inf
        largest = max(largest, difference)
    return largest
