"""Decoding of image files to uint8 tensors, with Pillow's pixels but faster for valid JPEGs."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg

from dml.core.errors import UserError
from dml.data.image_index import split_box

T = TypeVar("T")
JPEG = b"\xff\xd8\xff"


def load_image(image: Path | np.ndarray | Image.Image, apply_orientation: bool = False) -> Tensor:
    """Decodes one image to a uint8 tensor 3×H×W (RGB; grey, CMYK and other modes are converted).

    16-bit images keep their upper 8 bits, animations their first frame; transparency is dropped.
    The channels are innermost in memory (H×W×3), which is fastest to crop and resize.

    Args:
        image: a file, a box in a file (`dml.data.image_index.split_box`), pixels H×W×3, or an image
            of Pillow.
        apply_orientation: rotate the image upright by its EXIF orientation.

    Raises:
        UserError: the file is missing, cannot be decoded, or has 32-bit pixels; an empty box.
    """
    if isinstance(image, np.ndarray):
        return torch.from_numpy(image).permute(2, 0, 1)
    if isinstance(image, Image.Image):
        return _decode_with_pillow(image, apply_orientation)
    file, box = split_box(image)
    if box is not None:
        left, top, right, bottom = box
        part = release(load_image(file, apply_orientation)[:, top:bottom, left:right])
        if not part.numel():
            raise UserError(f"data: cannot decode {image}: no pixels of the image are in the box")
        return part
    try:
        data = np.fromfile(image, dtype=np.uint8)
    except OSError as error:
        raise UserError(f"data: cannot read {image}: {error.strerror}") from error
    if data[:3].tobytes() == JPEG:
        try:
            # A third faster than Pillow, which copies the pixels once more.
            return decode_jpeg(
                torch.from_numpy(data),
                mode=ImageReadMode.RGB,
                apply_exif_orientation=apply_orientation,
            )
        except RuntimeError:
            pass  # an unusual or damaged file: Pillow reads it or explains why not
    return _decode_with_pillow(image, apply_orientation)


def _decode_with_pillow(path: Path | Image.Image, apply_orientation: bool) -> Tensor:
    try:
        with nullcontext(path) if isinstance(path, Image.Image) else Image.open(path) as opened:
            upright = ImageOps.exif_transpose(opened) if apply_orientation else opened
            array = np.array(_to_eight_bits(upright).convert("RGB"))  # np.array: a writable copy
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UserError(f"data: cannot decode {path}: {error}") from error
    return torch.from_numpy(array).permute(2, 0, 1)


def _to_eight_bits(image: Image.Image) -> Image.Image:
    """Converts grey images of 16 bits, which Pillow would clip at 255, to their upper 8 bits."""
    sixteen = image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG")
    if sixteen:
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError("32-bit numbers have no white level; save it with 8 or 16 bits")
    return image


def release(image: Tensor) -> Tensor:
    """Returns an image that keeps no larger one in memory: a copy if it is a small part of one."""
    needed = image.numel() * image.element_size()
    if image.untyped_storage().nbytes() <= 1.25 * needed:
        return image
    return image.movedim(-3, -1).clone(memory_format=torch.contiguous_format).movedim(-1, -3)


def map_in_threads(function: Callable[[Any], T], items: Iterable[Any]) -> Generator[T, None, None]:
    """Yields `function(item)` in order; decoders release the interpreter lock.

    Unlike `Executor.map` alone this stores only a few results. An exception of the function is
    raised at its item and cancels the later items.
    """
    rest, threads, previous = iter(items), os.cpu_count() or 1, torch.get_num_threads()
    # One thread per item: otherwise torch would start several threads in each thread of the pool.
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        while some := list(islice(rest, 16 * threads)):
            yield from pool.map(function, some)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(previous)
