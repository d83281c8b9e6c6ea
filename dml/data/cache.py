"""Decoded images in one memory-mapped file, so that training never waits for a decoder.

The file `.pixels` holds the pixels of all images one after the other (each H×W×3, uint8). Its table
`.npy` has N rows of offset, height and width; it is written last, when all sizes are known.
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms import InterpolationMode

from dml.core.atomic_io import replace_file
from dml.core.errors import UserError
from dml.core.fault_injection import fault_point
from dml.core.locks import wait_for_lock
from dml.core.progress import show_progress
from dml.core.signals import raise_on_signals
from dml.data.decode import BACKGROUND, DECODER, is_opaque_format, load_image, map_in_threads
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex, file_of, hash_listing
from dml.data.transforms import ShorterSide

READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


class PixelCache(ImageSource):
    """Decoded images: `cache[row]` is the image of an index's row, uint8 3×H×W, channels innermost.

    Args:
        path: the file of the pixels, which is mapped; also by the copy in another process.

    Raises:
        UserError: the file or its table is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.table = np.load(path.with_suffix(".npy"))
            size = int((self.table[:, 1] * self.table[:, 2] * 3).sum())
            if path.stat().st_size != size:
                raise ValueError(f"not {size} bytes")
        except (OSError, ValueError, EOFError) as error:
            raise UserError(
                f"data.cache: {path} is damaged; delete it, it will be written again"
            ) from error
        self.pixels = torch.from_file(str(path), size=size, dtype=torch.uint8)

    def __getitem__(self, row: int) -> Tensor:
        offset, height, width = self.table[row].tolist()
        image = self.pixels[offset : offset + height * width * 3]
        return image.view(height, width, 3).permute(2, 0, 1)

    def __reduce__(self) -> tuple[Any, ...]:
        return PixelCache, (self.path,)


def open_image_source(
    index: ImageIndex, cache: int | str | None, root: str | Path
) -> ImageSource | None:
    """Maps the decoded images of a dataset; writes their file first if it does not exist.

    If several processes need the file, one of them writes it and the others wait. Only complete
    files are read. A dataset that was edited or moved is decoded again.

    Args:
        index: the dataset; only files are cached.
        cache: `data.cache`: None: every access decodes an image; `full`, or the shorter side of the
            cached images in pixels.
        root: `data.root`; the files of the cache are in its subfolder `.cache`.

    Returns:
        The cache, or None if every access decodes an image.

    Raises:
        UserError: an image cannot be decoded, or the file cannot be written completely.
        KeyboardInterrupt, RunStopped: at a signal while decoding or waiting; no file is left.
    """
    if cache is None or not index.files:
        return None
    folder = Path(root) if Path(root).is_dir() else Path(root).parent  # of a CSV file
    settings: list[object] = [DECODER, cache, index.apply_orientation]
    if _may_be_transparent(index):
        settings.append(index.background)
    digest = hash_listing(index.files, *settings)
    path = folder / ".cache" / f"{index.name}-{cache}-{digest}.pixels"
    files = path, path.with_suffix(".npy")
    if not all(map(Path.is_file, files)):
        try:
            lock = wait_for_lock(path.with_suffix(".lock"), f"writing {path}")
            with raise_on_signals(), lock:
                if not all(map(Path.is_file, files)):
                    _write(path, index, cache)
        except OSError as error:
            raise UserError(
                f"data.cache: cannot write {path}: {error.strerror}; {_advise(error)}, set "
                f"data.root to a folder that can be written (links in it may lead to the images), "
                f"or turn the cache off with data.cache=null"
            ) from error
    return PixelCache(path)


def _advise(error: OSError) -> str:
    """Returns the first advice for a cache that cannot be written."""
    if error.errno in READ_ONLY:
        return "let the owner of the folder train once with this data.cache, which writes it"
    return "free disk space, cache fewer pixels with data.cache=256"


def _may_be_transparent(index: ImageIndex) -> bool:
    """Returns whether the background may matter; False keeps caches of earlier versions valid.

    Without a check of the images their names tell it; another background counts in any case, since
    a file may hold another format than its name says.
    """
    if index.transparent is not None:
        return index.transparent > 0
    if index.background != BACKGROUND:
        return True
    files = [file_of(image) for image in index.files or ()]
    return not all(map(is_opaque_format, files))


def _write(path: Path, index: ImageIndex, side: int | str) -> None:
    for leftover in path.parent.glob(f".{path.name}.*.partial"):
        leftover.unlink()  # of a killed process; the lock excludes other writers
    count = len(index.images)
    table = np.empty((count, 3), np.int64)
    offset = 0
    # Closed explicitly: the traceback of a signal would keep the decoding threads running.
    decoded = closing(_decode_all(index, side))
    with decoded as images, replace_file(path) as temporary, open(temporary, "wb") as file:
        for row, pixels in enumerate(show_progress(images, "decoding image", count)):
            table[row] = offset, *pixels.shape[:2]
            offset += file.write(pixels.data)
            fault_point("cache_image")
    with replace_file(path.with_suffix(".npy")) as temporary, open(temporary, "wb") as file:
        np.save(file, table)


def _decode_all(index: ImageIndex, side: int | str) -> Generator[np.ndarray, None, None]:
    """Decodes all images in order (H×W×3)."""

    # Resized as by the transforms, so that training and testing at this size see the same pixels.
    resize = None
    if isinstance(side, int):
        resize = ShorterSide(side, InterpolationMode.BILINEAR)

    def decode(file: Path) -> np.ndarray:
        image = load_image(file, index.apply_orientation, index.background, index.max_pixels)
        if resize is not None:
            image = resize.whole(image)
        return np.ascontiguousarray(image.permute(1, 2, 0).numpy())

    return map_in_threads(decode, index.images)
