"""The facts of a published dataset, and the checks that all of it is there."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

from dml.core.errors import UserError
from dml.core.installation import shell_command
from dml.data.image_index import ImageIndex


@dataclass(frozen=True)
class PublishedDataset:
    """A benchmark under a folder of datasets, in the layout of its authors.

    Attributes:
        name: id, as in `data=<name>`.
        title: name in messages.
        root: the folder of datasets.
        images, classes: the counts to check against.
        recall_at: see `ImageIndex`.
    """

    name: str
    title: str
    root: Path
    images: int
    classes: int
    recall_at: tuple[int, ...] = (1, 2, 4, 8)

    @property
    def advice(self) -> str:
        """The command that prepares the dataset, at the end of every message about it."""
        return preparation_advice(self.name, self.root)

    def check_tables(self, *tables: Path) -> None:
        """Checks that the dataset's own tables are there.

        Raises:
            UserError: a table is missing; the message names the first one.
        """
        for path in tables:
            if not path.is_file():
                raise UserError(
                    f"data.root: {self.title} is not under {self.root} ({path} is missing); "
                    f"{self.advice}"
                )

    def read_columns(self, path: Path, columns: int, header: int = 0) -> list[list[str]]:
        """Reads the lines of a text table, each split into `columns` by whitespace.

        Args:
            path: the table.
            columns: their number; the last one may contain spaces.
            header: lines to skip.

        Raises:
            UserError: a line has fewer columns, or is not text.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (UnicodeDecodeError, OSError) as error:
            raise UserError(f"data.root: {path} cannot be read ({error}); {self.advice}") from error
        rows = []
        for number, line in enumerate(lines[header:], start=header + 1):
            row = line.split(maxsplit=columns - 1)
            if row and len(row) != columns:
                raise self.damaged(path, f"line {number} does not have {columns} columns")
            if row:
                rows.append(row)
        return rows

    def parse_class(self, value: str, path: Path) -> int:
        """Returns a class as the table `path` numbers it.

        Raises:
            UserError: `value` is not a number.
        """
        try:
            return int(value)
        except ValueError as error:
            raise self.damaged(path, f"{value!r} is not a class") from error

    def damaged(self, path: Path, reason: str) -> UserError:
        """Returns the error to raise for a damaged table."""
        return UserError(f"data.root: {path} is damaged: {reason}; {self.advice}")

    def build_index(
        self,
        files: Sequence[Path],
        classes: Sequence[int] | Sequence[str] | np.ndarray,
        roles: Sequence[str] | np.ndarray,
    ) -> ImageIndex:
        """Returns the index of the dataset, once its counts are the published ones.

        Args:
            files: N paths.
            classes: the dataset's own class of each image; labels follow their sorted order.
            roles: of each image.

        Raises:
            UserError: images or classes are missing, or there are too many.
        """
        names, labels = np.unique(np.asarray(classes), return_inverse=True)
        missing = find_missing(files)
        present = len(files) - len(missing)
        if (present, len(files), len(names)) != (self.images, self.images, self.classes):
            first = f" (first missing: {missing[0]})" if missing else ""
            other = ""
            if not missing and len(files):
                other = (
                    f"; for another dataset in this layout set data.reader.images={present} "
                    f"data.reader.classes={len(names)}"
                )
            raise UserError(
                f"data.root: {self.title} under {self.root} is not complete: found {present} of "
                f"{self.images} images ({len(files)} listed) and {len(names)} of {self.classes} "
                f"classes{first}; {self.advice}{other}"
            )
        return ImageIndex(
            name=self.name,
            images=files,
            labels=labels.astype(np.int64),
            roles=np.asarray(roles),
            recall_at=self.recall_at,
            root=self.root,
        )


def train_images(reader: str) -> int | None:
    """Returns the number of training images of a reader's dataset; None if it is not fixed.

    Args:
        reader: dotted name of a reader, whose module may define `TRAIN_IMAGES`.
    """
    with suppress(ImportError, ValueError):
        return getattr(import_module(reader.rpartition(".")[0]), "TRAIN_IMAGES", None)
    return None


def preparation_advice(name: str, root: str | Path) -> str:
    """Returns `run: <the command that prepares the dataset>`."""
    option = "" if Path(root) == Path("data") else f" --root {shlex.quote(str(root))}"
    return f"run: {shell_command('prepare')} {name}{option}"


def find_missing(files: Sequence[Path]) -> list[Path]:
    """Returns those of `files` that do not exist, in order.

    Lists every folder once instead of asking for every file: 120,000 images on a network file
    system would otherwise take minutes.
    """
    folders = {folder: _list_files(folder) for folder in Counter(file.parent for file in files)}
    return [file for file in files if file.name not in folders[file.parent]]


def _list_files(folder: Path) -> set[str]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise UserError(f"data.root: cannot read {folder}: {error.strerror}") from error
