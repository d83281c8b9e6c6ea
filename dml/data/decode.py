"""Decoding of image files to uint8 tensors, with Pillow's pixels but faster for valid JPEGs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from io import BytesIO
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from PIL import Image, ImageColor, ImageOps
from torch import Tensor

from dml.core.errors import UserError, first_line
from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.core.plain_text import show_line
from dml.core.processor import available_cores
from dml.core.regular_files import open_regular
from dml.core.torch_settings import threads_of_new_threads
from dml.data.image_formats import advise, prepare_format
from dml.data.image_index import split_box
from dml.data.packed_images import read_packed, split_packed

T = TypeVar("T")
DECODER = 2  # counts changes of pixels: caches and checks of an earlier decoder are made again
JPEG = b"\xff\xd8\xff"
GREY_STEPS = {"L;2": 85, "L;4": 17}  # of a grey level of 2 and 4 bits, as Pillow names them
TWELVE_BITS = 1 << 12
# Tags of a TIFF, and their values.
BITS_PER_SAMPLE, PHOTOMETRIC, MAX_SAMPLE_VALUE, SAMPLE_FORMAT = 258, 262, 281, 339
WHITE_IS_ZERO, SIGNED = 0, 2
OPAQUE = (".jpg", ".jpeg", ".jfif")
BACKGROUND = "white"  # default of `data.background`


class Decoded(NamedTuple):
    """A decoded image.

    Attributes:
        pixels: uint8 3×H×W (RGB).
        transparent: whether a pixel was not opaque.
    """

    pixels: Tensor
    transparent: bool


def load_image(
    image: Path | np.ndarray | Image.Image,
    apply_orientation: bool = False,
    background: str = BACKGROUND,
    max_pixels: int = MAX_IMAGE_PIXELS,
) -> Tensor:
    """Decodes one image to a uint8 tensor 3×H×W (RGB; grey, CMYK and other modes are converted).

    16-bit images keep their upper 8 bits, and animations their first frame. In a TIFF of 12 bits
    the largest number is white. Transparent pixels show the background. The channels are innermost
    in memory (H×W×3), which is fastest to crop and resize.

    Args:
        image: a file, a box in a file (`dml.data.image_index.split_box`), a part of an archive or a
            table (`dml.data.packed_images`), pixels H×W×3, or an image of Pillow.
        apply_orientation: rotate the image upright by its EXIF orientation.
        background: a color that `PIL.ImageColor` knows, on which transparent images are composed.
        max_pixels: largest height × width of a file, in its header.

    Raises:
        UserError: the file is missing, cannot be decoded, is too large, or has signed or 32-bit
            pixels, or 12 bits in 16 without a white level; an empty box.
    """
    return decode_image(image, apply_orientation, background, max_pixels).pixels


def decode_image(
    image: Path | np.ndarray | Image.Image,
    apply_orientation: bool = False,
    background: str = BACKGROUND,
    max_pixels: int = MAX_IMAGE_PIXELS,
) -> Decoded:
    """Decodes one image, and says whether it has transparent pixels; see `load_image`.

    Raises:
        UserError: as `load_image`.
    """
    if isinstance(image, np.ndarray):
        if image.ndim == 3 and image.shape[2] == 3:
            pixels = image if image.flags.writeable else image.copy()  # torch warns otherwise
            return Decoded(torch.from_numpy(pixels).permute(2, 0, 1), False)
        image = _as_pillow(image)
    if isinstance(image, Image.Image):
        return _decode_with_pillow(image, apply_orientation, background, max_pixels)
    file, box = split_box(image)
    if box is None:
        return _decode_file(image, apply_orientation, background, max_pixels)
    left, top, right, bottom = box
    whole = _decode_file(file, apply_orientation, background, max_pixels)
    part = release(whole.pixels[:, top:bottom, left:right])
    if not part.numel():
        raise UserError(f"data: cannot decode {image}: no pixels of the image are in the box")
    return Decoded(part, whole.transparent)


def _decode_file(image: Path, apply_orientation: bool, background: str, max_pixels: int) -> Decoded:
    data = None
    try:
        if split_packed(image) is not None:  # read once, header and pixels
            data = _read_bytes(image)
        check_pixels(image, max_pixels, data)
        packed = data
        if data is None:
            data = _read_bytes(image)
    except OSError as error:
        name = show_line(str(image))
        raise UserError(f"data: cannot read {name}: {error.strerror}") from error
    if data[:3].tobytes() == JPEG and _decode_jpeg is not None:
        try:
            return Decoded(_decode_jpeg(torch.from_numpy(data), apply_orientation), False)
        except (RuntimeError, AttributeError):
            pass  # an unusual or damaged file, or no operator: Pillow reads it or explains why not
    return _decode_with_pillow(image, apply_orientation, background, max_pixels, packed)


def _read_bytes(image: Path) -> np.ndarray:
    """Returns the bytes of an image, which may be packed with others (uint8, writable)."""
    if packed := split_packed(image):
        return np.frombuffer(bytearray(read_packed(packed)), dtype=np.uint8)
    with open_regular(image) as opened:
        return np.fromfile(opened, dtype=np.uint8)


def check_pixels(file: Path, max_pixels: int, data: np.ndarray | None = None) -> None:
    """Compares the size in an image's header with a limit, before anything is decoded.

    Files without a readable header pass: decoding them explains why it fails.

    Raises:
        UserError: the header announces more pixels.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with open_image(file, max_pixels, data) as opened:
                width, height = opened.size
    except Image.DecompressionBombError as error:
        raise _too_large(file, first_line(error), max_pixels) from error
    except (OSError, ValueError, SyntaxError):
        return
    if width * height > max_pixels:
        raise _too_large(file, f"{width}x{height} pixels", max_pixels)


def _too_large(file: Path, reason: str, max_pixels: int) -> UserError:
    return UserError(
        f"data: cannot decode {show_line(str(file))}: {reason}; images have at most "
        f"{max_pixels:,} pixels: make it smaller, or raise data.max_pixels (dml search: "
        f"--max-pixels)"
    )


def open_image(file: Path, max_pixels: int, data: np.ndarray | None = None) -> Image.Image:
    """Opens an image, of which only the header is read; or its bytes, if they were read before.

    A larger limit than Pillow's stands in for it meanwhile.
    """
    prepare_format(str(file))
    packed = split_packed(file) if data is None else None
    source: Path | BytesIO = file
    if data is not None:
        source = BytesIO(data.tobytes())
    elif packed is not None:
        source = BytesIO(read_packed(packed))
    if max_pixels <= MAX_IMAGE_PIXELS:
        return Image.open(source)
    with _limit_of_pillow:
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, max_pixels
        try:
            return Image.open(source)
        finally:
            Image.MAX_IMAGE_PIXELS = before


def _renew_lock() -> None:
    global _limit_of_pillow
    _limit_of_pillow = Lock()


_limit_of_pillow = Lock()
os.register_at_fork(after_in_child=_renew_lock)  # a thread of the parent may have held it


def _as_pillow(pixels: np.ndarray) -> Image.Image:
    """Returns pixels H×W (grey), H×W×2 (with alpha) or H×W×4 (RGBA) as an image of Pillow.

    Raises:
        UserError: they have another form.
    """
    is_image = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (2, 4))
    if not is_image or pixels.dtype != np.uint8:
        form = f"{pixels.dtype} of shape {pixels.shape}"
        raise UserError(f"data: pixels must be uint8 with height, width and 3 channels, got {form}")
    return Image.fromarray(pixels)


def _find_jpeg_decoder() -> Callable[[Tensor, bool], Tensor] | None:
    """Returns torchvision's decoder of JPEGs, a third faster than Pillow; None without it.

    It is deprecated; a build of torchvision may also lack its library.
    """
    try:
        from torchvision.io import ImageReadMode, decode_jpeg

        options = {"mode": ImageReadMode.RGB}
    except (ImportError, AttributeError, OSError, RuntimeError):
        return None

    def decode(data: Tensor, apply_orientation: bool) -> Tensor:
        return decode_jpeg(data, apply_exif_orientation=apply_orientation, **options)

    return decode


_decode_jpeg = _find_jpeg_decoder()


def _decode_with_pillow(
    path: Path | Image.Image,
    apply_orientation: bool,
    background: str,
    max_pixels: int,
    data: np.ndarray | None = None,
) -> Decoded:
    try:
        with _as_context(path, max_pixels, data) as opened:
            _scale_transparent_color(opened)
            upright = _turn_upright(opened) if apply_orientation else opened
            image, transparent = compose(_to_eight_bits(upright, opened), background)
            array = np.array(image)  # np.array: a writable copy
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        shown = show_line(str(path))
        reason = first_line(error).replace(f" {str(path)!r}", "") + advise(str(path))
        raise UserError(f"data: cannot decode {shown}: {reason}") from error
    return Decoded(torch.from_numpy(array).permute(2, 0, 1), transparent)


def _turn_upright(image: Image.Image) -> Image.Image:
    """Returns an image that is rotated by its EXIF orientation, and still knows its format."""
    upright = ImageOps.exif_transpose(image)
    upright.format = image.format
    return upright


def _as_context(
    image: Path | Image.Image, max_pixels: int, data: np.ndarray | None
) -> AbstractContextManager[Image.Image]:
    """Returns an image of a file, which is closed at the end, or the one that is given."""
    if isinstance(image, Image.Image):
        return nullcontext(image)
    return open_image(image, max_pixels, data)


def compose(image: Image.Image, background: str = BACKGROUND) -> tuple[Image.Image, bool]:
    """Returns an image in RGB on a background, and whether it has pixels that are not opaque.

    An opaque image is that of Pillow's `convert("RGB")`.

    Args:
        image: of any mode of 8 bits.
        background: a color that `PIL.ImageColor` knows.
    """
    if not image.has_transparency_data:
        return image.convert("RGB"), False
    if image.mode == "La":
        image = image.convert("LA")
    with_alpha = image.convert("RGBA")  # also of premultiplied alpha, palettes and single colors
    lowest, highest = with_alpha.getchannel("A").getextrema()
    is_unused = image.format == "BMP" and highest == 0  # a fourth byte that many programs leave 0
    if lowest == 255 or is_unused:
        return image.convert("RGB"), False
    canvas = Image.new("RGBA", image.size, ImageColor.getrgb(background)[:3])
    return Image.alpha_composite(canvas, with_alpha).convert("RGB"), True


def _scale_transparent_color(image: Image.Image) -> None:
    """Scales the transparent color of a PNG as its pixels, which Pillow turns into 8 bits."""
    color = image.info.get("transparency")
    tiles = getattr(image, "tile", None)
    if color is None or image.format != "PNG" or not tiles:
        return
    form = tiles[0][3]
    if form in GREY_STEPS:
        image.info["transparency"] = color * GREY_STEPS[form]
    elif form == "RGB;16B":
        red, green, blue = color
        image.info["transparency"] = (red >> 8, green >> 8, blue >> 8)


def _to_eight_bits(image: Image.Image, opened: Image.Image) -> Image.Image:
    """Converts images of 16 bits, which Pillow would clip at 255, to their upper 8 bits.

    Args:
        image: the upright image.
        opened: the image as it was opened, which knows its file.

    Raises:
        ValueError: the numbers have no known white level.
    """
    if _tiff_tag(opened, SAMPLE_FORMAT) == SIGNED:
        raise ValueError("signed numbers have no black level; save it with 8 bits")
    scaled = image.mode == "I" and opened.format in ("PNG", "PPM")
    if scaled or image.mode.startswith("I;16"):
        return _upper_bits(image, opened)
    if image.mode in ("I", "F"):
        raise ValueError("32-bit numbers have no white level; save it with 8 or 16 bits")
    if _has_sixteen_bits(opened) and not opened.has_transparency_data:
        highest = int(np.asarray(image).max(initial=0))  # of the upper 8 bits
        _check_scaled(highest and highest << 8 | 255)
    return image


def _upper_bits(image: Image.Image, opened: Image.Image) -> Image.Image:
    """Returns a grey image of 16 bits in 8; one of 12 bits by the white level that its file names.

    Raises:
        ValueError: no pixel is above a sixteenth of white, as where 12 bits are stored in 16.
    """
    numbers = np.asarray(image).astype(np.uint16)
    white = _white_level(opened)
    highest = int(numbers.max(initial=0))
    if white is None and not opened.has_transparency_data:
        _check_scaled(highest)
    levels = numbers >> 8
    if white is not None:
        levels = (numbers.astype(np.uint32) * 255 // white).clip(max=255)
    if _tiff_tag(opened, PHOTOMETRIC) == WHITE_IS_ZERO:
        levels = 255 - levels
    grey = Image.fromarray(levels.astype(np.uint8))
    if (transparent := image.info.get("transparency")) is not None:
        opaque = numbers != transparent
        grey.putalpha(Image.fromarray(opaque.astype(np.uint8) * 255))
    return grey


def _check_scaled(highest: int) -> None:
    """Raises ValueError if no pixel is above a sixteenth of white, as where 16 bits store 12."""
    if 0 < highest < TWELVE_BITS:
        raise ValueError(
            f"its 16-bit numbers end at {highest}, nearly black; scale them to 65535, or save it "
            f"with 8 bits"
        )


def _white_level(image: Image.Image) -> int | None:
    """Returns the number that is white in a TIFF of less than 16 bits; None: 65535, or unknown."""
    bits = _tiff_tag(image, BITS_PER_SAMPLE)
    if bits is not None and 8 < bits < 16:
        return (1 << bits) - 1
    largest = _tiff_tag(image, MAX_SAMPLE_VALUE)
    if largest is not None and 255 < largest < 65535:
        return largest
    return None


def _has_sixteen_bits(image: Image.Image) -> bool:
    """Returns whether the channels of an opened file have 16 bits each, of which Pillow keeps 8."""
    tiles = getattr(image, "tile", None) or []
    return any(";16" in str(tile[3]) for tile in tiles[:1])


def _tiff_tag(image: Image.Image, tag: int) -> int | None:
    """Returns the first number of a tag of a TIFF; None: another format, or no such tag."""
    value = getattr(image, "tag_v2", {}).get(tag)
    if isinstance(value, tuple) and value:
        value = value[0]
    return value if isinstance(value, int) else None


def is_opaque_format(file: Path) -> bool:
    """Returns whether images in files with such a name cannot have transparent pixels."""
    return file.suffix.lower() in OPAQUE


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
    rest, threads = iter(items), available_cores()
    # One thread per item: otherwise torch would start several threads in each thread of the pool.
    with threads_of_new_threads(1):
        pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
        try:
            while some := list(islice(rest, 16 * threads)):
                yield from pool.map(function, some)
        finally:
            pool.shutdown(cancel_futures=True)
