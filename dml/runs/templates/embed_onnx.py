"""Embeds image files by model.onnx: python embed_onnx.py photo.jpg …

Needs numpy, onnxruntime and pillow (12 or newer). The settings are those of
preprocessor_config.json beside this file. Photos are turned upright, and transparent images get the
background of the training. Pixels are resized in PyTorch's integers, and not by Pillow, whose
pixels differ by a level here and there: embeddings equal those of the training to 1e-5.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnxruntime
from PIL import Image, ImageColor, ImageOps

FOLDER = Path(__file__).resolve().parent
CONFIG: dict[str, Any] = json.loads((FOLDER / "preprocessor_config.json").read_text("utf-8"))
SESSION = onnxruntime.InferenceSession(FOLDER / "model.onnx", providers=["CPUExecutionProvider"])
METADATA: dict[str, str] = SESSION.get_modelmeta().custom_metadata_map
SIZE: list[int] | None = json.loads(METADATA["image_size"])  # None: any
THIN = 10  # longer by shorter side of images that Pillow resizes


def embed(files: Sequence[str | Path | IO[bytes]]) -> np.ndarray:
    """Returns embeddings N×D of N image files; the images go through the network one by one."""
    rows = [SESSION.run(["embeddings"], {"images": prepare(file)[None]})[0] for file in files]
    return np.concatenate(rows)


def prepare(file: str | Path | IO[bytes]) -> np.ndarray:
    """Returns the input of the network for an image file, float32 3×H×W.

    Raises:
        OSError, ValueError: it is no image that Pillow can read, or not of the network's size.
    """
    pixels_HWC = crop(decode(file))
    height, width = pixels_HWC.shape[:2]
    if SIZE is not None and [height, width] != SIZE:
        raise ValueError(
            f"{name(file)}: {height}x{width} pixels; the network takes {SIZE[0]}x{SIZE[1]}"
        )
    if CONFIG["do_flip_channel_order"]:
        pixels_HWC = pixels_HWC[:, :, ::-1]
    scaled_HWC = pixels_HWC * np.float32(CONFIG["rescale_factor"])
    mean, std = np.float32(CONFIG["image_mean"]), np.float32(CONFIG["image_std"])
    return np.ascontiguousarray(((scaled_HWC - mean) / std).transpose(2, 0, 1))


def name(file: str | Path | IO[bytes]) -> str:
    """Returns the name of an image file for a message."""
    return str(file) if isinstance(file, str | Path) else "the image"


def decode(file: str | Path | IO[bytes]) -> np.ndarray:
    """Returns the upright pixels of an image file, uint8 H×W×3."""
    with Image.open(file) as opened:
        if opened.mode.startswith(("I", "F")):
            raise ValueError(f"{name(file)}: 16- and 32-bit pixels; save it with 8 bits")
        image = ImageOps.exif_transpose(opened)
        if image.has_transparency_data:
            image = put_on_background(image.convert("RGBA"), is_bitmap=opened.format == "BMP")
        return np.asarray(image.convert("RGB"))


def put_on_background(image: Image.Image, is_bitmap: bool) -> Image.Image:
    """Returns an RGBA image on the background of the training."""
    _, highest = image.getchannel("A").getextrema()
    if is_bitmap and highest == 0:  # a fourth byte that many programs leave 0
        return image
    canvas = Image.new("RGBA", image.size, ImageColor.getrgb(CONFIG["background"])[:3])
    return Image.alpha_composite(canvas, image)


def crop(pixels_HWC: np.ndarray) -> np.ndarray:
    """Returns the pixels resized, and cropped around their center, as the settings say."""
    if not CONFIG["do_resize"]:
        return pixels_HWC
    height, width = pixels_HWC.shape[:2]
    if not CONFIG["do_center_crop"]:
        size = CONFIG["size"]["height"], CONFIG["size"]["width"]
        return resize(pixels_HWC, size, (0, 0), size)
    side = CONFIG["size"]["shortest_edge"]
    longer = int(side * max(height, width) / min(height, width))
    size = (side, longer) if height <= width else (longer, side)
    shape = CONFIG["crop_size"]["height"], CONFIG["crop_size"]["width"]
    corner = round((size[0] - shape[0]) / 2), round((size[1] - shape[1]) / 2)
    if max(height, width) > THIN * min(height, width):
        return resize_thin(pixels_HWC, size, corner, shape)
    return resize(pixels_HWC, size, corner, shape)


def resize_thin(
    pixels_HWC: np.ndarray, size: tuple[int, int], corner: tuple[int, int], shape: tuple[int, int]
) -> np.ndarray:
    """Returns a window of a resized image by Pillow, from the pixels below it alone."""
    rows, top, bottom = source_range(pixels_HWC.shape[0], size[0], corner[0], shape[0])
    columns, left, right = source_range(pixels_HWC.shape[1], size[1], corner[1], shape[1])
    image = Image.fromarray(np.ascontiguousarray(pixels_HWC[rows, columns]))
    box = left, top, right, bottom
    return np.asarray(image.resize((shape[1], shape[0]), CONFIG["resample"], box))


def source_range(length: int, resized: int, start: int, count: int) -> tuple[slice, float, float]:
    """Returns the source pixels of resized ones with a margin, and the ends of these therein."""
    step = length / resized
    first, last = start * step, min((start + count) * step, length)
    margin = math.ceil(2 * max(1.0, step)) + 1
    begin = max(0, math.floor(first) - margin)
    end = min(length, math.ceil(last) + margin)
    return slice(begin, end), first - begin, last - begin


def resize(
    pixels_HWC: np.ndarray, size: tuple[int, int], corner: tuple[int, int], shape: tuple[int, int]
) -> np.ndarray:
    """Returns a window of a resized image: its columns first, as PyTorch does.

    Args:
        size: height and width of the whole image when resized.
        corner: top and left of the window.
        shape: height and width of the window.
    """
    columns = np.ascontiguousarray(pixels_HWC.transpose(1, 0, 2))
    columns = resize_rows(columns, size[1], corner[1], shape[1])
    rows = np.ascontiguousarray(columns.transpose(1, 0, 2))
    return resize_rows(rows, size[0], corner[0], shape[0])


def resize_rows(rows: np.ndarray, length: int, start: int, count: int) -> np.ndarray:
    """Returns `count` rows from `start` of an image that is resized to `length` rows."""
    taken = slice(start, start + count)
    if length == len(rows):
        return rows[taken]
    step = len(rows) / length
    reach = max(step, 1.0) * (2 if CONFIG["resample"] == Image.Resampling.BICUBIC else 1)
    centers = step * (np.arange(length) + 0.5)
    first = np.maximum((centers - reach + 0.5).astype(int), 0)
    last = np.minimum((centers + reach + 0.5).astype(int), len(rows))
    sources = first[:, None] + np.arange((last - first).max())
    weights = kernel(np.abs(sources - centers[:, None] + 0.5) / max(step, 1.0))
    weights[sources >= last[:, None]] = 0
    weights /= weights.sum(axis=1, keepdims=True)
    bits = 0  # of the weights as integers, of which the largest has at most 15
    while bits < 22 and int(0.5 + weights.max() * 2 ** (bits + 1)) < 2**15:
        bits += 1
    weights = np.trunc(weights * 2**bits + np.copysign(0.5, weights)).astype(np.int32)[taken]
    sources = sources[taken].clip(max=len(rows) - 1)
    total = np.full((len(weights), *rows.shape[1:]), 2**bits // 2, dtype=np.int32)
    for tap in range(weights.shape[1]):
        total += weights[:, tap, None, None] * rows[sources[:, tap]]
    return (total >> bits).clip(0, 255).astype(np.uint8)


def kernel(distances: np.ndarray) -> np.ndarray:
    """Returns the weights of pixels at distances from the center: bicubic or linear."""
    if CONFIG["resample"] != Image.Resampling.BICUBIC:
        return np.maximum(1 - distances, 0)
    near = (1.5 * distances - 2.5) * distances**2 + 1
    far = ((-0.5 * distances + 2.5) * distances - 4) * distances + 2
    return np.where(distances < 1, near, np.where(distances < 2, far, 0))


if __name__ == "__main__":
    for path, embedding in zip(sys.argv[1:], embed(sys.argv[1:]), strict=True):
        print(path, *embedding)
