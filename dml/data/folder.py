"""A user's own images: one folder per class, or a CSV that names path, label and perhaps split."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np

from dml.core.errors import UserError, nearest
from dml.data.image_csv import ImageList, read_image_csv
from dml.data.image_index import ROLES, ImageIndex
from dml.data.published_dataset import find_missing

SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif"),
    *(".tif", ".tiff", ".webp", ".ppm", ".pgm"),
)


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
    found = _folders(root) if root.is_dir() else read_image_csv(root)
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
    files, classes = [], []
    for folder in folders:
        found = sorted(_images(folder))
        files += found
        classes += [folder.name] * len(found)
    return files, classes


def _images(folder: Path) -> Iterable[Path]:
    for place, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and name.lower().endswith(SUFFIXES):
                yield Path(place, name)


def _subfolders(folder: Path) -> list[Path]:
    return [path for path in _listed(folder) if path.is_dir()]


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
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
    if "train" not in roles:
        _refuse(root, "no image has the split 'train'; give it to some")
    if roles - {"train"} not in ({"test"}, {"query", "gallery"}):
        _refuse(
            root,
            f"the splits are {', '.join(sorted(roles))}; unseen images are either all 'test', or "
            f"some 'query' and some 'gallery'",
        )


def _check_classes(root: Path, labels: np.ndarray, roles: np.ndarray, names: Sequence[str]) -> None:
    """Checks that the test classes are unseen, and that something can be retrieved among them."""
    trained = np.isin(roles, "train")
    shared = np.intersect1d(labels[trained], labels[~trained])
    if len(shared):
        shown = ", ".join(f"'{names[label]}'" for label in shared[:5])
        more = f" and {len(shared) - 5} more" if len(shared) > 5 else ""
        _refuse(
            root,
            f"{len(shared)} classes are trained on and tested with ({shown}{more}); scores are of "
            f"unseen classes: give each class to one side, or drop the splits to halve the classes",
        )
    if (roles == "query").any():
        if not np.isin(labels[roles == "query"], labels[roles == "gallery"]).any():
            _refuse(root, "no query has an image of its class in the gallery; add some")
    elif np.bincount(labels[~trained]).max() < 2:
        _refuse(root, "no unseen class has two images, so that nothing can be found; add some")


def _refuse(root: Path, problem: str) -> NoReturn:
    raise UserError(f"data.root: {root}: {problem}")
