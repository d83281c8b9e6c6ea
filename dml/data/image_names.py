"""The paths of many images in one array, without an object of Python for each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

PART = 10_000  # names that are handled at once


class ImageNames(Sequence[Path]):
    """N paths as bytes, one after the other: about 70 bytes for each, where a Path takes 400.

    Args:
        data: the bytes of all names (uint8).
        ends: N int64, where each name ends in `data`.
    """

    def __init__(self, data: np.ndarray, ends: np.ndarray) -> None:
        self.data, self.ends = data, ends

    @classmethod
    def of(cls, names: Iterable[str | Path]) -> ImageNames:
        """Returns the names of paths.

        Raises:
            UnicodeEncodeError: no file can have such a name.
        """
        data = bytearray()
        ends = []
        for name in names:
            data += os.fsencode(name)
            ends.append(len(data))
        return cls(np.frombuffer(data, np.uint8), np.array(ends, np.int64))

    @classmethod
    def join(cls, parts: Sequence[ImageNames]) -> ImageNames:
        """Returns the names of all parts, one after the other."""
        sizes = [len(part.data) for part in parts]
        starts = np.cumsum([0, *sizes[:-1]])
        ends = [part.ends + start for part, start in zip(parts, starts, strict=True)]
        data = [part.data for part in parts]
        return cls(np.concatenate(data), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[Path]:
        return map(Path, self.texts())

    @overload
    def __getitem__(self, rows: int) -> Path: ...

    @overload
    def __getitem__(self, rows: slice) -> ImageNames: ...

    def __getitem__(self, rows: Any) -> Path | ImageNames:
        """Returns the path of a row, or the names of a slice."""
        if isinstance(rows, slice):
            return self.take(np.arange(len(self))[rows])
        row = range(len(self))[rows]
        start = int(self.ends[row - 1]) if row else 0
        return Path(os.fsdecode(self.data[start : int(self.ends[row])].tobytes()))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ImageNames):
            same_ends = np.array_equal(self.ends, other.ends)
            return same_ends and np.array_equal(self.data, other.data)
        if isinstance(other, list | tuple):
            return [*self] == [*other]
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def take(self, rows: np.ndarray) -> ImageNames:
        """Returns the names of some rows (n integers from 0), in their order."""
        starts = np.concatenate([[0], self.ends[:-1]])[: len(self)]
        sizes = (self.ends - starts)[rows]
        parts = [np.empty(0, np.uint8)]
        for first in range(0, len(rows), PART):  # the positions of all bytes would take too much
            some, lengths = rows[first : first + PART], sizes[first : first + PART]
            before = np.cumsum(lengths) - lengths
            positions = np.arange(lengths.sum()) + np.repeat(starts[some] - before, lengths)
            parts.append(self.data[positions])
        return ImageNames(np.concatenate(parts), np.cumsum(sizes, dtype=np.int64))

    def texts(self) -> Iterator[str]:
        """Yields the names as texts."""
        start = 0
        for first in range(0, len(self), PART):
            ends = self.ends[first : first + PART].tolist()
            part, offset = self.data[start : ends[-1]].tobytes(), start
            names: bytes | str = part.decode() if part.isascii() else part  # at once: in less time
            for end in ends:
                yield os.fsdecode(names[start - offset : end - offset])
                start = end


def as_names(paths: Iterable[str | Path]) -> Sequence[Path]:
    """Returns paths in little memory; as a list of Paths if no file can have one of the names."""
    paths = [*paths]
    try:
        return ImageNames.of(paths)
    except UnicodeEncodeError:  # which decoding says
        return [Path(path) for path in paths]


def take_images(images: Sequence[Any] | np.ndarray, rows: np.ndarray) -> Sequence[Any]:
    """Returns the images of some rows of an index, in their order."""
    if isinstance(images, ImageNames):
        return images.take(np.asarray(rows, np.int64))
    return [images[row] for row in rows]


def texts_of(images: Sequence[Path]) -> Iterator[str]:
    """Yields the paths of images as texts."""
    return images.texts() if isinstance(images, ImageNames) else map(str, images)
