"""Image files to uint8 tensors, as Pillow reads them but faster where the file is a sound JPEG."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from dml.core.errors import UserError

try:
    from torchvision.io import ImageReadMode, decode_jpeg
except ImportError:  # torchvision means to hand decoding over to another package one day
    decode_jpeg = None

JPEG = b"\xff\xd8\xff"


def load_image(image: Path | np.ndarray) -> Tensor:
    """Decodes one image to a uint8 tensor 3×H×W (RGB; grey, CMYK and other modes are converted).

    Of 16 bits the upper 8 are kept, of animations the first image; transparency is dropped.

    The tensor's memory runs through the channels first (H×W×3), in which crops and resizing are
    fastest.

    Raises:
        UserError: the file is missing, cannot be decoded, or holds numbers instead of levels.
    """
    if isinstance(image, np.ndarray):
        return torch.from_numpy(image).permute(2, 0, 1)
    try:
        data = np.fromfile(image, dtype=np.uint8)
    except OSError as error:
        raise UserError(f"data: cannot read {image}: {error.strerror}") from error
    if decode_jpeg is not None and data[:3].tobytes() == JPEG:
        try:
            # A third faster than Pillow, which copies the pixels once more.
            return decode_jpeg(torch.from_numpy(data), mode=ImageReadMode.RGB)
        except RuntimeError:
            pass  # an unusual or damaged file: Pillow decides, and says what is wrong with it
    return _with_pillow(image)


def _with_pillow(path: Path) -> Tensor:
    try:
        with Image.open(path) as opened:
            array = np.array(_eight_bits(opened).convert("RGB"))  # np.array: a writable copy
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UserError(f"data: cannot decode {path}: {error}") from error
    return torch.from_numpy(array).permute(2, 0, 1)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Grey images of more bits, which Pillow would clip at 255: all of them white."""
    sixteen = image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG")
    if sixteen:
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError("32-bit numbers have no white level; save it with 8 or 16 bits")
    return image
