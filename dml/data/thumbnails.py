"""Small JPEGs of images, for pages and files that carry their pictures."""

from __future__ import annotations

import io

from PIL import Image
from torch import Tensor
from torchvision.transforms.functional import to_pil_image

QUALITY = 80


def make_thumbnail(pixels: Tensor, side: int) -> bytes:
    """Returns the JPEG of an image whose longer side has at most `side` pixels.

    Smaller images keep their size, and a thin one keeps a pixel of its shorter side.

    Args:
        pixels: uint8 3×H×W (RGB).
        side: pixels, 1 or more.
    """
    image = to_pil_image(pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=QUALITY, optimize=True)
    return stream.getvalue()
