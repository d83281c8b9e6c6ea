"""What the readers of published datasets share: is all of it there?"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy as np

from dml.core.errors import UserError
from dml.data.base import ImageIndex


def train_images(reader: str) -> int | None:
    """Returns the number of training images of a reader's dataset; None if it is not fixed.

    Args:
        reader: dotted name of a reader, whose module may define `TRAIN_IMAGES`.
    """
    with suppress(ImportError, ValueError):
        return getattr(import_module(reader.rpartition(".")[0]), "TRAIN_IMAGES", None)
    return None


def preparation(name: str, root: str | Path) -> str:
    """The advice that ends every message about an absent or partial dataset."""
    place = "" if Path(root) == Path("data") else f" --root {shlex.quote(str(root))}"
    return f"run: python scripts/prepare_data.py {name}{place}"


def require(files: Sequence[Path], *, name: str, title: str, root: str | Path) -> None:
    """Checks that a dataset's own tables are there.

    Raises:
        UserError: naming the first that is not.
    """
    for file in files:
        if not file.is_file():
            raise UserError(
                f"data.root: {title} is not under {root} (no {file}); {preparation(name, root)}"
            )


def checked_index(
    files: Sequence[Path],
    published: Sequence[int] | Sequence[str] | np.ndarray,
    roles: Sequence[str] | np.ndarray,
    *,
    name: str,
    title: str,
    root: str | Path,
    images: int,
    classes: int,
    recall_at: tuple[int, ...] = (1, 2, 4, 8),
) -> ImageIndex:
    """The index of a published dataset, once its counts are the published ones.

    Args:
        files: one path per image.
        published: the dataset's own class of each; labels follow its sorted order.
        roles: of each image.
        name, title: id and name of the dataset.
        root: where the user said it is.
        images, classes: the published counts.
        recall_at: see `ImageIndex`.

    Raises:
        UserError: images or classes are missing or too many.
    """
    found, labels = np.unique(np.asarray(published), return_inverse=True)
    missing = missing_files(files)
    present = len(files) - len(missing)
    if (present, len(files), len(found)) != (images, images, classes):
        absent = f" (first missing: {missing[0]})" if missing else ""
        raise UserError(
            f"data.root: {title} under {root} is not complete: found {present} of {images} images "
            f"({len(files)} listed) and {len(found)} of {classes} classes{absent}; "
            f"{preparation(name, root)}"
        )
    return ImageIndex(
        name=name,
        images=files,
        labels=labels.astype(np.int64),
        roles=np.asarray(roles),
        recall_at=recall_at,
        root=Path(root),
    )


def missing_files(files: Sequence[Path]) -> list[Path]:
    """Those of `files` that do not exist, in order.

    One listing per folder instead of one question per file: 120,000 images on a network file
    system would otherwise take minutes to ask about.
    """
    folders = {folder: _names(folder) for folder in Counter(file.parent for file in files)}
    return [file for file in files if file.name not in folders[file.parent]]


def _names(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except ValueError:  # a zero byte in the name
        return set()
    except OSError as error:
        raise UserError(f"data.root: cannot read {folder}: {error.strerror}") from error


def table(path: Path, columns: int, *, advice: str, header: int = 0) -> list[list[str]]:
    """The lines of a text table after `header` lines, each split into `columns` by whitespace.

    Args:
        path: the table.
        columns: the last one may contain spaces.
        advice: what to do about a damaged table.
        header: lines to pass over.

    Raises:
        UserError: a line has fewer columns, or is no text.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (UnicodeDecodeError, OSError) as error:
        raise UserError(f"data.root: {path} cannot be read ({error}); {advice}") from error
    rows = []
    for number, line in enumerate(lines[header:], start=header + 1):
        row = line.split(maxsplit=columns - 1)
        if row and len(row) != columns:
            raise UserError(
                f"data.root: {path} is damaged: line {number} has not {columns} columns; {advice}"
            )
        if row:
            rows.append(row)
    return rows


def class_number(value: str, path: Path, *, advice: str) -> int:
    """A class as the tables number it.

    Raises:
        UserError: `value`, out of the table `path`, is no number.
    """
    try:
        return int(value)
    except ValueError as error:
        raise UserError(f"data.root: {path} is damaged: {value!r} is no class; {advice}") from error
