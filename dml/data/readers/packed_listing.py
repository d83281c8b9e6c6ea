"""The list of the images in shards and tables, which is stored, so that a start need not read them.

A file that has not changed since, by its size and its modification time, is not read again. Reading
that is interrupted continues with the next file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from dml.core.atomic_io import replace_file
from dml.core.progress import show_progress
from dml.core.regular_files import open_regular
from dml.core.signals import raise_on_signals
from dml.data.image_index import hash_words
from dml.data.image_names import ImageNames
from dml.data.packed_images import expect_state

FORM = 1  # counts changes of what is read and stored
FEW = 10_000  # images; fewer are listed in a second or two, and not stored
SAVE_SECONDS = 30.0  # between two times that an unfinished list is stored
# Errors of a file that is cut off, or that other software has written.
DAMAGED = (ValueError, TypeError, AttributeError, LookupError, EOFError, OverflowError, BadZipFile)
TEXTS = ("label", "split", "category")


class Row(NamedTuple):
    """An image and what its shard or table says of it.

    Attributes:
        path: its name (`dml.data.packed_images`).
        label: None: it has none.
        is_number: whether the label is a number there, and no text.
        split, category: None: it has none.
    """

    path: Path
    label: str | None
    is_number: bool
    split: str | None = None
    category: str | None = None


class Listing(NamedTuple):
    """N images of files, in their order; see `Row`, whose texts may be missing (code −1).

    `counts` are the numbers of images of the files.
    """

    counts: list[int]
    names: ImageNames
    are_numbers: np.ndarray
    labels: pd.Categorical
    splits: pd.Categorical
    categories: pd.Categorical


class _Part(NamedTuple):
    """The images of a file: N names, whether labels are numbers, and codes of the texts, N×3."""

    names: ImageNames
    are_numbers: np.ndarray
    codes: np.ndarray


def list_files(
    files: Sequence[Path],
    read: Callable[[Path], Iterable[Row]],
    folder: Path | None,
    incomplete: Collection[Path] = (),
) -> Listing:
    """Returns the images of files.

    Args:
        files: shards or tables.
        read: returns the images of a file.
        folder: of the stored list, if that can be written; None: nothing is stored.
        incomplete: to which `read` adds files with images that it cannot read, perhaps not yet:
            they are read again at the next start.

    Raises:
        UserError: `read` raised it; what was read before is stored.
        KeyboardInterrupt, RunStopped: at a signal; what was read before is stored.
    """
    stored = _Stored(files, folder, incomplete)
    missing = [file for file in files if file not in stored.parts]
    if missing:
        with raise_on_signals():
            try:
                for file in show_progress(missing, "listing images of file", len(missing)):
                    stored.add(file, read(file))
            finally:
                stored.save()
    return stored.join(files)


class _Stored:
    """What is known of the images of files, and was stored.

    Args:
        files: shards or tables.
        folder: of the stored list.
        incomplete: files that are not stored.

    Attributes:
        parts: file → its images; without files that have changed, or were never read.
    """

    def __init__(
        self, files: Sequence[Path], folder: Path | None, incomplete: Collection[Path]
    ) -> None:
        self.path, self._incomplete = None, incomplete
        if folder is not None:
            digest = hash_words([str(FORM), *map(str, files)])
            self.path = folder / f"listed-{digest}.npz"
        self.parts: dict[Path, _Part] = {}
        self._states: dict[Path, list[int]] = {}
        self._codes: list[dict[str, int]] = [{} for _ in TEXTS]
        self._saved = time.monotonic()
        with suppress(OSError, *DAMAGED):
            self._load(files)

    def _load(self, files: Sequence[Path]) -> None:
        if self.path is None:
            return
        with open_regular(self.path) as opened, np.load(opened, allow_pickle=False) as arrays:
            described = json.loads(arrays["described"].tobytes())
            names = ImageNames(arrays["names"], arrays["ends"])
            are_numbers, codes = arrays["are_numbers"], arrays["codes"]
        texts = [[str(text) for text in described["texts"][name]] for name in TEXTS]
        _check(names, are_numbers, codes, texts)
        file_of = {str(file): file for file in files}
        parts, first = {}, 0
        for name, (count, *state) in described["files"].items():
            rows = slice(first, first + count)
            first += count
            file = file_of[name]
            if state == _state_of(file):
                parts[file] = _Part(names[rows], are_numbers[rows], codes[rows])
                self._states[file] = state
        if first != len(names):
            raise ValueError("files and images differ")
        self.parts = parts
        self._codes = [dict(zip(some, range(len(some)), strict=True)) for some in texts]

    def add(self, file: Path, rows: Iterable[Row]) -> None:
        """Takes the images of a file."""
        state = _state_of(file)  # before: a file that changes meanwhile is read again
        names: list[Path] = []
        are_numbers: list[bool] = []
        codes: list[tuple[int, ...]] = []
        for row in rows:
            names.append(row.path)
            are_numbers.append(row.is_number)
            texts = row.label, row.split, row.category
            codes.append(tuple(map(self._number, self._codes, texts)))
        self.parts[file] = _Part(
            ImageNames.of(names),
            np.array(are_numbers, bool),
            np.array(codes, np.int32).reshape(-1, len(TEXTS)),
        )
        self._states[file] = state
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self.save()

    @staticmethod
    def _number(codes: dict[str, int], text: str | None) -> int:
        return codes.setdefault(text, len(codes)) if text else -1

    def save(self) -> None:
        """Stores the images of all files that are known, if these are many."""
        parts = {}
        for file, part in self.parts.items():
            if file not in self._incomplete:
                parts[file] = part
        count = sum(len(part.names) for part in parts.values())
        if self.path is None or not parts or count < FEW:
            return
        files = {}
        for file, part in parts.items():
            files[str(file)] = [len(part.names), *self._states[file]]
        texts = {name: [*codes] for name, codes in zip(TEXTS, self._codes, strict=True)}
        described = json.dumps({"files": files, "texts": texts}).encode()
        joined = _join([*parts.values()])
        with (
            suppress(OSError),
            replace_file(self.path) as temporary,
            open(temporary, "wb") as opened,
        ):
            np.savez(
                opened,
                described=np.frombuffer(described, np.uint8),
                names=joined.names.data,
                ends=joined.names.ends,
                are_numbers=joined.are_numbers,
                codes=joined.codes,
            )
        self._saved = time.monotonic()

    def join(self, files: Sequence[Path]) -> Listing:
        """Returns the images of all files, in the order of these."""
        for file in files:
            expect_state(file, *self._states[file])
        parts = [self.parts[file] for file in files]
        joined = _join(parts)
        texts = []
        for column, codes in enumerate(self._codes):
            known = pd.Index([*codes], dtype=object)
            values = pd.Categorical.from_codes(joined.codes[:, column], known)
            texts.append(values.remove_unused_categories())  # of files that have changed
        counts = [len(part.names) for part in parts]
        return Listing(counts, joined.names, joined.are_numbers, *texts)


def _join(parts: Sequence[_Part]) -> _Part:
    return _Part(
        ImageNames.join([part.names for part in parts]),
        np.concatenate([part.are_numbers for part in parts]),
        np.concatenate([part.codes for part in parts]),
    )


def _state_of(file: Path) -> list[int]:
    """Returns size and modification time (ns) of a file, by which it is read again."""
    status = file.stat()
    return [status.st_size, status.st_mtime_ns]


def _check(
    names: ImageNames, are_numbers: np.ndarray, codes: np.ndarray, texts: Sequence[Sequence[str]]
) -> None:
    """Raises ValueError if stored arrays have another form, or numbers out of range."""
    count = len(names)
    sizes = np.diff(names.ends, prepend=0)
    is_whole = count == 0 or (sizes.min() > 0 and names.ends[-1] == len(names.data))
    limits = np.array([len(some) for some in texts])
    are_codes = codes.shape == (count, len(TEXTS)) and codes.dtype.kind == "i"
    if not (is_whole and are_codes and are_numbers.shape == (count,)):
        raise ValueError("another form")
    if not ((codes >= -1) & (codes < limits)).all():
        raise ValueError("a number of no text")
