"""Images that join a file of embeddings: what is new, what has changed, and what is gone.

A file remembers of each row the root that the image was listed by (a folder, a list or an image),
and size and time of its file. `dml embed --append` lists the root again: rows whose file is the
same are kept, the others are embedded. The rows of the root stand in the order of its list, as if
all were embedded at once, in the places of its first row; rows of other roots keep their order.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dml.core.errors import UserError
from dml.data.image_index import split_box
from dml.retrieval.embedding_file import ImageEmbeddings

UNSURE_SECONDS = 2.0  # some file systems count the time of a file in steps of two seconds
UNKNOWN = -1  # time of a file that was written while it was embedded, or just before
# Of `made_by`, what embeddings do not depend on beyond rounding; the network's name is checked too.
FREE = ("origin", "batch_size", "device", "repeat", "fold", "network")
LIMIT = "data.max_pixels="  # an option that changes no embedding


@dataclass(frozen=True)
class FileStates:
    """Root, size and time of each of N files.

    Attributes:
        roots: the folder, list or image that the file was listed by, without links.
        sizes: bytes.
        times: of the last change, nanoseconds; `UNKNOWN` for one that may have changed since.
    """

    roots: np.ndarray
    sizes: np.ndarray
    times: np.ndarray


def read_states(files: Sequence[Path], root: str) -> FileStates:
    """Returns the states of files; a time that is not long ago is left unknown."""
    latest = time.time_ns() - int(UNSURE_SECONDS * 1e9)
    sizes = np.zeros(len(files), np.int64)
    times = np.zeros(len(files), np.int64)
    for row, file in enumerate(files):
        status = os.stat(split_box(file)[0])
        sizes[row] = status.st_size
        times[row] = status.st_mtime_ns if status.st_mtime_ns < latest else UNKNOWN
    return FileStates(np.full(len(files), root), sizes, times)


@dataclass(frozen=True)
class Merge:
    """How rows of a file and new rows become the rows of a file.

    Attributes:
        old_rows: for each row of the result its row in the old file; −1: it is embedded.
        new_rows: for each row of the result its row in the list of the root; −1: of another root.
        added, changed, dropped: numbers of images.
    """

    old_rows: np.ndarray
    new_rows: np.ndarray
    added: int
    changed: int
    dropped: int

    @property
    def embedded(self) -> np.ndarray:
        """Rows in the list of the root that are embedded."""
        return self.new_rows[self.old_rows < 0]


def merge_rows(old: ImageEmbeddings, names: Sequence[str], states: FileStates, root: str) -> Merge:
    """Returns how the rows of a file and the list of a root are merged.

    An image that the file has under another root stays there, and is embedded if it has changed.
    Args:
        old: the file, which tells its roots.
        names: of the images that the root lists now.
        states: of their files.
        root: see `FileStates`.
    """
    row_of = {name: row for row, name in enumerate(old.paths.tolist())}
    listed = set(names)
    roots = old.roots
    assert roots is not None  # by check_known
    is_of_root = roots == root
    stays = ~is_of_root
    kept_rows = np.full(len(names), -1)
    changed = 0
    for row, name in enumerate(names):
        before = row_of.get(name, -1)
        if before >= 0 and _is_same(old, before, states, row):
            kept_rows[row] = before
        changed += int(before >= 0 and kept_rows[row] < 0)
    new_row_of = {name: row for row, name in enumerate(names)}
    is_elsewhere = {name for name, row in row_of.items() if name in listed and stays[row]}
    block = [row for row, name in enumerate(names) if name not in is_elsewhere]
    place = int(np.argmax(is_of_root)) if is_of_root.any() else len(roots)
    old_rows: list[int] = []
    new_rows: list[int] = []
    for row in [*range(place), -1, *range(place, len(roots))]:
        if row < 0:
            old_rows += kept_rows[block].tolist()
            new_rows += block
        elif stays[row]:
            listed_row = new_row_of.get(str(old.paths[row]), -1)
            old_rows.append(row if listed_row < 0 else int(kept_rows[listed_row]))
            new_rows.append(listed_row)
    dropped = int(sum(name not in listed for name in old.paths[is_of_root].tolist()))
    added = sum(name not in row_of for name in names)
    return Merge(np.array(old_rows, int), np.array(new_rows, int), added, changed, dropped)


def _is_same(old: ImageEmbeddings, before: int, states: FileStates, row: int) -> bool:
    """Returns whether the file of a row is surely the one that was embedded."""
    if old.file_sizes is None or old.file_times is None:
        return False
    is_known = old.file_times[before] != UNKNOWN
    is_size = old.file_sizes[before] == states.sizes[row]
    is_time = old.file_times[before] == states.times[row]
    return bool(is_known and is_size and is_time)


def check_known(old: ImageEmbeddings, path: Path) -> None:
    """Checks that a file tells of its images what appending needs.

    Raises:
        UserError: other software, an earlier version, or an array or a dataset made it.
    """
    if old.splits is not None:
        raise UserError(f"append: {path} holds a dataset with its splits; embed it anew")
    if old.roots is None or not old.made_by:
        raise UserError(
            f"append: {path} does not say of which folders or lists its images are; embed them "
            f"anew, without --append"
        )


def check_appendable(old: ImageEmbeddings, made_by: dict[str, Any], path: Path) -> None:
    """Checks that the rows of a file were made as new ones would be.

    Raises:
        UserError: they were made by another network, or with other options.
    """
    networks = [_real(str(made.get("network"))) for made in (old.made_by, made_by)]
    if networks[0] != networks[1]:
        raise UserError(
            f"append: {path} was made by {old.made_by.get('network')}, not by "
            f"{made_by['network']}; use that network, or another file"
        )
    names = [name for name in made_by if name not in FREE]
    for name in ("weights", *names):
        before, now = _value(old.made_by, name), _value(made_by, name)
        if before != now:
            raise UserError(
                f"append: {name} of {path} is {_show(before)}, and would be {_show(now)}; use the "
                f"same, or embed all images anew in another file"
            )
    for name in ("repeat", "fold"):
        if (old.made_by.get(name) or 0) != (made_by.get(name) or 0):
            raise UserError(f"append: {path} was made by another {name} of the run; choose it")


def _real(network: str) -> str:
    return os.path.realpath(network) if os.path.exists(network) else network


def _value(made_by: dict[str, Any], name: str) -> Any:
    """Returns a value of `made_by`, of options those that may change embeddings."""
    value = made_by.get(name)
    if name != "options" or not isinstance(value, list):
        return value
    return sorted(str(option) for option in value if not str(option).startswith(LIMIT))


def _show(value: Any) -> str:
    text = " ".join(value) if isinstance(value, list) else str(value)
    return text[:80] or "empty"


def check_labels(old: ImageEmbeddings, labels: np.ndarray | None, merge: Merge) -> None:
    """Checks that all rows of the result have a class, or none has.

    Raises:
        UserError: some would have one.
    """
    others = merge.old_rows[merge.new_rows < 0]
    has_new = bool((merge.new_rows >= 0).any())
    if not len(others) or not has_new:
        return
    if old.labels is not None and labels is None:
        raise UserError(
            "append: the file has labels, and the images have none; put them into class folders, "
            "or give a CSV file with a column label"
        )
    if old.labels is None and labels is not None:
        raise UserError(
            "append: the file has no labels, and the images have some; give them as a list of "
            "paths, or use another file"
        )


def check_spelling(old: ImageEmbeddings, source: Path, root: str) -> None:
    """Checks that a folder is named as it was: paths are as seen from the current folder.

    Raises:
        UserError: the file has rows of it under another name.
    """
    if not source.is_dir():
        return
    start = "" if source == Path() else os.path.join(str(source), "")
    rows = np.flatnonzero(old.roots == root)
    others = [str(old.paths[row]) for row in rows if not str(old.paths[row]).startswith(start)]
    if others:
        raise UserError(
            f"append: the file names images of this folder as {others[0]}; run the command in the "
            f"folder of the first one, and name {source} as there"
        )
