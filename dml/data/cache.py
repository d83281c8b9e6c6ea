"""Decoded images in one memory-mapped file, so that training never waits for a decoder.

Layout of a file: the pixels of all images one after the other (each H×W×3, uint8), a table of N
rows (offset, height, width; int64), and a footer (MAGIC, N; int64). The table comes last because
sizes are known only once an image is decoded.
"""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dml.core.atomic_io import replace_file
from dml.core.errors import UserError
from dml.core.fault_injection import fault_point
from dml.core.locks import wait_for_lock
from dml.core.progress import show_progress
from dml.core.signals import raise_on_signals
from dml.data.decode import load_image
from dml.data.fingerprint import hash_listing
from dml.data.image_dataset import ImageSource
from dml.data.image_index import ImageIndex
from dml.data.threads import map_in_threads
from dml.data.transforms import ResizeShorter

MAGIC = 0x31534C45584950  # "PIXELS1" in the file


class PixelCache:
    """Decoded images: `cache[row]` is the image of an index's row, uint8 3×H×W, channels innermost.

    Args:
        pixels: all pixels, flat.
        table: N rows of offset, height, width.
        path: the file behind `pixels`; unpickling this object in another process maps it again.
    """

    def __init__(self, pixels: Tensor, table: np.ndarray, path: Path) -> None:
        self.pixels, self.table, self.path = pixels, table, path
        sizes = table[:, 1:]
        self._one_size = sizes[0].tolist() if (sizes == sizes[0]).all() else None

    @classmethod
    def open(cls, path: Path) -> PixelCache:
        """Maps a finished file.

        Raises:
            UserError: the file is damaged.
        """
        size = path.stat().st_size
        with open(path, "rb") as file:
            file.seek(max(0, size - 16))
            footer = np.frombuffer(file.read(), np.int64)
            count = int(footer[1]) if len(footer) == 2 and footer[0] == MAGIC else 0
            table_start = size - 16 - count * 24
            file.seek(max(0, table_start))
            table = np.frombuffer(file.read(count * 24), np.int64).reshape(-1, 3)
        pixels = int((table[:, 1] * table[:, 2] * 3).sum())
        if not count or pixels != table_start:
            raise UserError(f"data.cache: {path} is damaged; delete it, it will be written again")
        return cls(torch.from_file(str(path), size=pixels, dtype=torch.uint8), table, path)

    def __getitem__(self, row: int) -> Tensor:
        offset, height, width = self.table[row].tolist()
        image = self.pixels[offset : offset + height * width * 3]
        return image.view(height, width, 3).permute(2, 0, 1)

    def batch(self, rows: np.ndarray) -> Tensor | None:
        """Returns images B×3×H×W if all images of the dataset have one size, else None."""
        if self._one_size is None:
            return None
        images_NHWC = self.pixels.view(-1, *self._one_size, 3)
        return images_NHWC[torch.from_numpy(rows)].permute(0, 3, 1, 2)

    def __reduce__(self) -> tuple[Any, ...]:
        return PixelCache.open, (self.path,)


def open_image_source(
    index: ImageIndex, cache: int | str | None, root: str | Path
) -> ImageSource | None:
    """Opens the cache of the option `data.cache`; returns None if every access decodes an image.

    Args:
        index: the dataset; only files are cached.
        cache: None, `full`, or the shorter side of the cached images in pixels.
        root: `data.root`; the files of the cache are in its subfolder `.cache`.

    Raises:
        UserError: see `open_cache`.
    """
    if cache is None or not index.files:
        return None
    folder = Path(root) if Path(root).is_dir() else Path(root).parent  # of a CSV file
    side = cache if isinstance(cache, int) else None
    return open_cache(index, side, folder / ".cache")


def open_cache(index: ImageIndex, side: int | None, folder: str | Path) -> PixelCache:
    """Maps the file of a dataset's decoded images; writes the file first if it does not exist.

    If several processes need the file, one of them writes it and the others wait. Only complete
    files are read. A dataset that was edited or moved is decoded again.

    Args:
        index: the dataset; its images are files.
        side: shorter side of the cached images in pixels; None keeps the full resolution.
        folder: the folder of the cache.

    Raises:
        UserError: an image cannot be decoded, or the file cannot be written completely.
        KeyboardInterrupt, RunStopped: at a signal while decoding or waiting; no file is left.
    """
    upright = ("upright",) if index.apply_orientation else ()
    digest = hash_listing(index.files or [], MAGIC, side, *upright)
    name = f"{index.name}-{side or 'full'}-{digest}.pixels"
    path = Path(folder) / name
    if not path.is_file():
        try:
            lock = wait_for_lock(path.with_suffix(".lock"), f"writing {path}")
            with raise_on_signals(), lock:
                if not path.is_file():
                    _write(path, index, side)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            remedy = (
                "free disk space, cache fewer pixels with data.cache=256"
                if full
                else "set data.root to a folder that can be written (links in it may lead to the "
                "images)"
            )
            raise UserError(
                f"data.cache: cannot write {path}: {error.strerror}; {remedy}, "
                f"or turn the cache off with data.cache=null"
            ) from error
    return PixelCache.open(path)


def _write(path: Path, index: ImageIndex, side: int | None) -> None:
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
        file.write(table.tobytes())
        file.write(np.array([MAGIC, count], np.int64).tobytes())


def _decode_all(index: ImageIndex, side: int | None) -> Generator[np.ndarray, None, None]:
    """Decodes all images in order (H×W×3), in threads: decoders release the interpreter lock."""

    # Resized as by the transforms, so that training and testing at this size see the same pixels.
    resize = ResizeShorter(side) if side is not None else nn.Identity()

    def decode(file: Path) -> np.ndarray:
        image = resize(load_image(file, index.apply_orientation))
        return np.ascontiguousarray(image.permute(1, 2, 0).numpy())

    return map_in_threads(decode, index.images)
