"""Layouts in which copies of a published dataset are, below a folder of datasets.

A reader lists its layouts, the published one first. Each says by which files it is recognized, and
reads them as one table (`ImageTable`): nothing behind the reader depends on the layout.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dml.data.readers.folder_names import is_system_folder
from dml.data.readers.image_tree import find_missing, walk_images

if TYPE_CHECKING:
    from dml.data.readers.published_dataset import PublishedDataset

DEPTH = 3  # levels of folders below a root in which layouts are looked for
LISTED = 2000  # entries of a folder that are looked at: folders with more hold images
LOOKED_AT = 1000  # folders below a root
SUBFOLDERS = "/*"  # at the end of a part
ENTERED = 50  # subfolders: a folder with more holds classes


class ImageTable(NamedTuple):
    """The images of a dataset, as every layout lists them.

    Attributes:
        files: N paths.
        classes: N numbers or names, whose sorted order is that of the published classes.
        roles: N roles.
        boxes: N×4, left, top, right and bottom in pixels from 0, without the last row and column;
            NaN: the image has no box. None: the layout has no boxes.
        notes: what a user should know of the table.
        categories: N names (`ImageIndex.categories`); None: the dataset has no categories.
    """

    files: Sequence[Path]
    classes: Sequence[int] | Sequence[str] | np.ndarray
    roles: Sequence[str] | np.ndarray
    boxes: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    categories: Sequence[str] | None = None


@dataclass(frozen=True)
class Layout:
    """How the files of a dataset are arranged.

    Attributes:
        title: name in messages: `class folders`.
        parts: paths below the folder of the dataset, all of which must exist; alternatives are
            separated by `|`, and `/*` at the end asks for a folder with subfolders.
        read: returns the table of the dataset in a folder.
        folders: names of the folder of the dataset in lower case; empty: it may have any name.
        home: name of this folder where `dml prepare` makes it; empty: a copy has another one.
    """

    title: str
    parts: tuple[str, ...]
    read: Callable[[PublishedDataset, Path], ImageTable]
    folders: tuple[str, ...] = ()
    home: str = ""

    def missing_parts(self, folder: Path) -> list[str]:
        """Returns the parts that a folder does not have, each by its first name."""
        missing = []
        for part in self.parts:
            if locate(folder, part) is None:
                missing.append(part.partition("|")[0])
        return missing

    def holds(self, folder: Path, file: Path) -> bool:
        """Returns whether a file is in one of the parts that a folder has."""
        located = [locate(folder, part) for part in self.parts]
        return any(part is not None and file.is_relative_to(part) for part in located)


class LayoutMatch(NamedTuple):
    """A layout of which a folder has at least one part.

    Attributes:
        layout: the layout.
        folder: the folder of the dataset.
        missing: the parts that it lacks; empty: it is complete.
    """

    layout: Layout
    folder: Path
    missing: list[str]


def find_layouts(
    root: Path, layouts: Sequence[Layout], any_name: bool = False
) -> list[LayoutMatch]:
    """Returns the layouts that a folder and its subfolders have, in the order of `layouts`.

    Of a layout in several folders, its home comes first, and then those nearest to the root.

    Args:
        root: a folder.
        layouts: of a dataset, in order of preference.
        any_name: whether the folder of the dataset may have any name.
    """
    folders = list(islice(_walk_folders(root), LOOKED_AT))
    matches = []
    for layout in layouts:
        home = [root / layout.home] if root / layout.home in folders[1:] else []
        for folder in dict.fromkeys([*home, *folders]):
            if layout.folders and not any_name and folder.name.lower() not in layout.folders:
                continue
            missing = layout.missing_parts(folder)
            if len(missing) < len(layout.parts):
                matches.append(LayoutMatch(layout, folder, missing))
    return matches


def _walk_folders(root: Path) -> Iterator[Path]:
    """Yields a folder and its subfolders, the nearest first, without those of images."""
    level = [root]
    for _ in range(DEPTH + 1):
        below: list[Path] = []
        for folder in level:
            yield folder
            names = list_folders(folder)
            if len(names) <= ENTERED:
                below += [folder / name for name in names]
        level = below


def list_folders(folder: Path) -> list[str]:
    """Returns the sorted names of the subfolders of a folder, without those of a system."""
    names = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, LISTED):
            if entry.is_dir() and not is_system_folder(entry.name):
                names.append(entry.name)
    return sorted(names)


def locate(folder: Path, part: str) -> Path | None:
    """Returns a file or folder below another one; None if it is not there.

    Names may differ in case, and folders may be doubled (`devkit/devkit/…`).

    Args:
        folder: where to look.
        part: a path below it, `/` between names; alternatives are separated by `|`, and `/*` at the
            end asks for a folder with subfolders.
    """
    for path in part.split("|"):
        located = _locate_path(folder, path.removesuffix(SUBFOLDERS).split("/"))
        is_flat = path.endswith(SUBFOLDERS) and located and not list_folders(located)
        if located and not is_flat:
            return located
    return None


def find_part(folder: Path, part: str) -> Path:
    """Returns what `locate` does, or the first path where it is expected."""
    return locate(folder, part) or folder / part.partition("|")[0]


def _locate_path(folder: Path, names: Sequence[str]) -> Path | None:
    if not names:
        return folder
    child = _find_child(folder, names[0])
    if child is None:
        return None
    located = _locate_path(child, names[1:])
    if located is None and (doubled := _find_child(child, names[0])):
        located = _locate_path(doubled, names[1:])
    return located


def _find_child(folder: Path, name: str) -> Path | None:
    """Returns the entry of a folder with a name, which may differ in case; None: there is none."""
    child = folder / name
    if child.exists():
        return child
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, LISTED):
            if entry.name.lower() == name.lower():
                return folder / entry.name
    return None


def match_files(folder: Path, names: Sequence[str]) -> list[Path]:
    """Returns the files of a table below a folder; those that are not there as the table has them.

    A file that is not at its path is looked for by its name everywhere below the folder, without
    the first folder of the path: folders may be doubled or renamed, and letters differ in case.

    Args:
        folder: of the images.
        names: paths of the table, relative to the folder.
    """
    files = [folder / name for name in names]
    missing = set(find_missing(files))
    if not missing or not folder.is_dir():
        return files
    depths = {max(1, name.count("/")) for name in names}
    by_tail: dict[str, Path | None] = {}
    for file in walk_images(folder)[0]:
        for depth in depths:
            tail = _tail(file.relative_to(folder).as_posix(), depth)
            by_tail[tail] = None if tail in by_tail else file  # None: it is not known which
    matched = []
    for file, name in zip(files, names, strict=True):
        other = by_tail.get(_tail(name, max(1, name.count("/"))))
        matched.append(other if file in missing and other is not None else file)
    return matched


def _tail(path: str, depth: int) -> str:
    """Returns the last names of a path in lower case and composed letters."""
    last = "/".join(path.split("/")[-depth:])
    return unicodedata.normalize("NFC", last).lower()


def list_classes(folder: Path) -> dict[str, list[Path]]:
    """Returns class → its images, of a folder of class folders, both in the order of names."""
    files, folders, _ = walk_images(folder)
    images: dict[str, list[Path]] = {}
    for file, names in zip(files, folders, strict=True):
        if names:
            images.setdefault(names[0], []).append(file)
    return dict(sorted(images.items()))
