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
from dml.data.image_index import file_of
from dml.retrieval.embedding_file import ImageEmbeddings

UNSURE_SECONDS = 2.0  # some file systems count the time of a file in steps of two seconds
UNKNOWN = -1  # time of a file that was written while it was embedded, or just before
# Of `made_by`, what embeddings do not depend on beyond rounding; the network's name is checked too.
FREE = ("origin", "batch_size", "device", "repeat", "fold", "network")
SEVERAL = "several"  # origin of a file of several roots, which no other command replaces
LIMIT = "data.max_pixels="  # an option that changes no embedding


@dataclass(frozen=True)
class FileStates:
    """Root, size and times of each of N files.

    Attributes:
        roots: the folder, list or image that the file was listed by, without links.
        sizes: bytes.
        times: of the last change, nanoseconds; `UNKNOWN` for one that may have changed since.
        known_times: of the last change that was seen.
    """

    roots: np.ndarray
    sizes: np.ndarray
    times: np.ndarray
    known_times: np.ndarray

    def content(self, rows: np.ndarray | slice = slice(None)) -> tuple[list[int], list[int]]:
        """Returns what tells whether some of the files were changed between two calls."""
        return self.sizes[rows].tolist(), self.known_times[rows].tolist()


def read_states(files: Sequence[Path], root: str) -> FileStates:
    """Returns the states of files; a time that is not long ago is left unknown."""
    latest = time.time_ns() - int(UNSURE_SECONDS * 1e9)
    sizes = np.zeros(len(files), np.int64)
    times = np.zeros(len(files), np.int64)
    for row, file in enumerate(files):
        status = os.stat(file_of(file))
        sizes[row] = status.st_size
        times[row] = status.st_mtime_ns
    sure = np.where(times < latest, times, UNKNOWN)
    return FileStates(np.full(len(files), root), sizes, sure, times)


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
    kept_rows, added, changed = _match_files(old, names, states)
    new_row_of = {name: row for row, name in enumerate(names)}
    listed_rows = np.array([new_row_of.get(name, -1) for name in old.paths.tolist()], int)
    assert old.roots is not None  # by check_known
    is_of_root = np.equal(old.roots, root)
    others = np.flatnonzero(~is_of_root)
    others_new = listed_rows[others]
    is_listed = others_new >= 0
    others_old = others.copy()
    others_old[is_listed] = kept_rows[others_new[is_listed]]
    elsewhere = set(old.paths[others[is_listed]].tolist())
    block = np.array([row for row, name in enumerate(names) if name not in elsewhere], int)
    first_row = int(np.argmax(is_of_root)) if is_of_root.any() else len(is_of_root)
    before = int(np.searchsorted(others, first_row))  # rows of other roots
    old_rows = np.concatenate([others_old[:before], kept_rows[block], others_old[before:]])
    new_rows = np.concatenate([others_new[:before], block, others_new[before:]])
    dropped = int((listed_rows[is_of_root] < 0).sum())
    return Merge(old_rows, new_rows, added, changed, dropped)


def _match_files(
    old: ImageEmbeddings, names: Sequence[str], states: FileStates
) -> tuple[np.ndarray, int, int]:
    """Returns the row in the file of each image that has not changed, else −1.

    And the numbers of images that the file does not have, and of those that have changed.
    """
    row_of = {name: row for row, name in enumerate(old.paths.tolist())}
    kept_rows = np.full(len(names), -1)
    added, changed = 0, 0
    for row, name in enumerate(names):
        if name not in row_of:
            added += 1
        elif _is_same(old, row_of[name], states, row):
            kept_rows[row] = row_of[name]
        else:
            changed += 1
    return kept_rows, added, changed


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
    for name in ("weights", "compress", *names):
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
    if value is None:
        return "not set"
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


def join_rows(
    old: ImageEmbeddings,
    merge: Merge,
    rows: np.ndarray | None,
    names: np.ndarray,
    labels: np.ndarray | None,
    states: FileStates,
    made_by: dict[str, Any],
) -> ImageEmbeddings:
    """Returns the rows of a file after an append.

    Args:
        old: the file.
        merge: of its rows with those of the list.
        rows: the embedded ones, n×(1 + views)×D, or codes of them as in the file; None: nothing
            is embedded.
        names, labels, states: of the list.
        made_by: of the result, unless it has several roots.
    """
    is_new = merge.old_rows < 0
    embeddings = old.embeddings[merge.old_rows]
    views = None if old.views is None else old.views[merge.old_rows]
    if rows is not None:
        embeddings[is_new] = rows[:, 0]
    if rows is not None and views is not None:
        views[is_new] = rows[:, 1:]
    paths = _join_column(old.paths, names, merge)
    assert paths is not None  # both files have them
    assert old.roots is not None  # by check_known
    # An image that another root has listed stays there.
    known = dict(zip(old.paths.tolist(), old.roots.tolist(), strict=True))
    roots = np.array([known.get(name, *states.roots[:1].tolist()) for name in paths.tolist()])
    if len(np.unique(roots)) > 1:
        made_by = {**made_by, "origin": SEVERAL}
    return ImageEmbeddings(
        embeddings,
        paths,
        _join_column(old.labels, labels, merge),
        made_by,
        views,
        None,
        roots,
        _join_column(old.file_sizes, states.sizes, merge),
        _join_column(old.file_times, states.times, merge),
        old.compression,
    )


def _join_column(
    before: np.ndarray | None, now: np.ndarray | None, merge: Merge
) -> np.ndarray | None:
    """Returns a column: the list's values where it has the image, else those of the file.

    None: not known for all rows.
    """
    is_listed = merge.new_rows >= 0
    if now is None:
        return None if before is None or is_listed.any() else before[merge.old_rows]
    if before is None:
        return now[merge.new_rows] if is_listed.all() else None
    column = before[merge.old_rows].astype(np.result_type(before.dtype, now.dtype))
    column[is_listed] = now[merge.new_rows[is_listed]]
    return column
