"""A user's own images: one folder per class, or a CSV that names path, label and perhaps split."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from dml.core.errors import UserError, nearest
from dml.data.image_index import ROLES, ImageIndex
from dml.data.published_dataset import find_missing

SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif"),
    *(".tif", ".tiff", ".webp", ".ppm", ".pgm"),
)


@dataclass(frozen=True)
class ImageList:
    """Images that a user listed, not checked yet.

    Attributes:
        files: N paths.
        classes: N class names.
        splits: N roles, or None to split the classes in halves.
    """

    files: list[Path]
    classes: list[str]
    splits: list[str] | None = None


def read_folder(root: str | Path) -> ImageIndex:
    """Lists a user's own images.

    `root` is one of

    - a folder `<class>/<image>`; the first half of the classes trains,
    - a folder `<split>/<class>/<image>` with the splits train and test, or train, query, gallery,
    - a CSV file with the columns path (relative to the CSV's folder, or absolute), label and, if
      wanted, split; without it the first half of the classes trains.

    Images may lie deeper in the folder of their class. Classes are in alphabetical order, or in
    numerical order where all names are whole numbers; `1` and `01` are two classes. Hidden files
    and folders are passed over.

    Args:
        root: the folder, or the CSV file.

    Raises:
        UserError: nothing there, a damaged CSV, missing files, fewer than two classes, classes that
            are both trained on and tested with, or a split that leaves nothing to train on or to
            test with.
    """
    root = Path(root)
    if not root.exists():
        raise UserError(f"data.root: no folder or CSV file {root}; name it with data.root=<place>")
    found = _folders(root) if root.is_dir() else _read_csv(root)
    missing = find_missing(found.files)
    if missing:
        _refuse(
            root,
            f"{len(missing)} of {len(found.files)} images do not exist, first {missing[0]}"
            + ("" if root.is_dir() else "; paths are relative to the folder of the CSV file"),
        )
    labels, names = _labels(found.classes)
    if len(names) < 2:
        _refuse(
            root,
            f"images of {len(names)} classes, at least 2 are needed; name another place with "
            f"data.root=<place>, which has <class>/<image> or "
            f"<split>/<class>/<image> in a folder, with image files {' '.join(SUFFIXES)}, "
            f"or a CSV file with the columns path,label",
        )
    if found.splits is None:
        roles = np.where(labels < len(names) // 2, "train", "test")
    else:
        roles = np.asarray(found.splits)
        _check_roles(root, set(found.splits))
    _check_classes(root, labels, roles, names)
    place = root if root.is_dir() else root.parent
    return ImageIndex(
        name=place.resolve().name or "folder",
        images=found.files,
        labels=labels,
        roles=roles,
        own_split=found.splits is not None,
        root=place,
        fingerprint_name="folder",
    )


def _read_csv(path: Path) -> ImageList:
    """Reads a CSV file in UTF-8 with a header, separated by commas, semicolons or tabs.

    Blanks around a value are ignored, and so are other columns; labels are names, never numbers.

    Args:
        path: the file; the paths in it are absolute, or relative to its folder.

    Raises:
        UserError: the file is not such a table; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        _refuse(path, f"line {line} is not UTF-8 text; save the table as CSV in UTF-8")
    except OSError as error:
        raise UserError(f"data.root: cannot read {path}: {error.strerror}") from error
    header = text.partition("\n")[0]
    delimiter = max(",;\t", key=header.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    values: dict[str, list[str]] = {}
    lines: dict[str, int] = {}
    try:
        columns = [name.strip() for name in reader.fieldnames or ()]
        if not {"path", "label"} <= set(columns):
            _refuse(
                path,
                f"the first line must name the columns path,label and, optionally, split; they "
                f"are: {', '.join(columns)[:80] or 'none'}",
            )
        reader.fieldnames = columns
        values = {name: [] for name in ("path", "label", "split") if name in columns}
        for row in reader:
            line, surplus = reader.line_num, row.pop(None, None)
            if surplus:
                _refuse(
                    path,
                    f"line {line} has more than {len(columns)} values; put double quotes around a "
                    f"value that contains '{delimiter}'",
                )
            cells = {name: (cell or "").strip() for name, cell in row.items()}
            if not any(cells.values()):
                continue
            for column, known in values.items():
                if not cells[column]:
                    _refuse(path, f"line {line}: the {column} is missing; fill it in")
                known.append(cells[column])
            file = os.path.normpath(cells["path"])
            if file in lines:
                _refuse(path, f"line {line} names {file} again, after line {lines[file]}; drop one")
            lines[file] = line
    except csv.Error as error:
        _refuse(path, f"line {reader.reader.line_num} cannot be read ({error}); correct the line")
    files = [path.parent / file for file in values["path"]]
    return ImageList(files, values["label"], values.get("split"))


def _folders(root: Path) -> ImageList:
    """Images by the folder of their class; where folders are named as splits, those below them."""
    top = _subfolders(root)
    splits = [folder for folder in top if folder.name in ROLES]
    if len(splits) < 2:
        files, classes = _class_folders(top)
        return ImageList(files, classes)
    if len(splits) < len(top):
        other = next(folder.name for folder in top if folder.name not in ROLES)
        _refuse(
            root,
            f"the folder '{other}' is next to splits; splits are {', '.join(ROLES)}: rename it, or "
            f"move it out",
        )
    files, classes, roles = [], [], []
    for split in splits:
        some_files, some_classes = _class_folders(_subfolders(split))
        files += some_files
        classes += some_classes
        roles += [split.name] * len(some_files)
    return ImageList(files, classes, roles)


def _class_folders(folders: Iterable[Path]) -> tuple[list[Path], list[str]]:
    pairs = [(file, folder.name) for folder in folders for file in sorted(_images(folder))]
    return [file for file, _ in pairs], [name for _, name in pairs]


def _images(folder: Path) -> Iterable[Path]:
    for place, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and name.lower().endswith(SUFFIXES):
                yield Path(place, name)


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    except OSError as error:
        _unreadable(error)


def _unreadable(error: OSError) -> NoReturn:
    raise UserError(f"data.root: cannot read {error.filename}: {error.strerror}") from error


def _labels(classes: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Labels N in the order of the classes' names, and those names."""
    found = set(classes)
    if all(name.isascii() and name.isdigit() for name in found):
        # By value without computing it, since floats and int64 end before people's numbers do.
        names = sorted(found, key=lambda name: (len(name.lstrip("0")), name.lstrip("0"), name))
    else:
        names = sorted(found)
    label_of = {name: label for label, name in enumerate(names)}
    return np.array([label_of[name] for name in classes], np.int64), names


def _check_roles(root: Path, roles: set[str]) -> None:
    unknown = roles - set(ROLES)
    if unknown:
        name = min(unknown)
        _refuse(root, f"no split '{name}'{nearest(name, ROLES)}; valid are {', '.join(ROLES)}")
    if "train" not in roles or roles - {"train"} not in ({"test"}, {"query", "gallery"}):
        _refuse(
            root,
            f"the splits are {', '.join(sorted(roles))}; expected 'train' and 'test', or 'train', "
            f"'query' and 'gallery'",
        )


def _check_classes(root: Path, labels: np.ndarray, roles: np.ndarray, names: Sequence[str]) -> None:
    """Checks that the test classes are unseen, and that something can be retrieved among them."""
    trained = np.isin(roles, "train")
    shared = np.intersect1d(labels[trained], labels[~trained])
    if len(shared):
        shown = ", ".join(names[label] for label in shared[:5])
        _refuse(
            root,
            f"{len(shared)} classes are trained on and tested with ({shown}); scores are of "
            f"unseen classes: give each class to one side, or drop the splits to halve the classes",
        )
    if (roles == "query").any():
        if not np.isin(labels[roles == "query"], labels[roles == "gallery"]).any():
            _refuse(root, "no query has an image of its class in the gallery; add some")
    elif np.bincount(labels[~trained]).max() < 2:
        _refuse(root, "no unseen class has two images, so that nothing can be found; add some")


def _refuse(root: Path, problem: str) -> NoReturn:
    raise UserError(f"data.root: {root}: {problem}")
