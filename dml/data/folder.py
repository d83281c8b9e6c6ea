"""A user's own images: one folder per class, or a CSV that names path, label and perhaps split."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from dml.data.base import ROLES, ImageIndex
from dml.data.published import missing_files
from dml.errors import UserError, nearest

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")


def read_folder(root: str | Path) -> ImageIndex:
    """Lists the images under a folder of class folders, or those of a CSV file.

    The CSV has the columns `path` (relative to the CSV's folder, or absolute), `label` and, if
    wanted, `split` (train, test, query or gallery). Without a split the first half of the classes
    trains. Classes are in alphabetical order, or in numerical order where all labels are integers.
    Hidden files and folders are passed over.

    Args:
        root: the folder, or the CSV file.

    Raises:
        UserError: nothing there, a damaged CSV, missing files, fewer than two classes, or a split
            that leaves nothing to train on or to test with.
    """
    root = Path(root)
    if root.is_dir():
        files, names, splits = _class_folders(root)
    elif root.is_file():
        files, names, splits = _csv(root)
    else:
        raise UserError(f"data.root: no folder or CSV file {root}; name it with data.root=<place>")
    labels, count = _labels(names)
    if count < 2:
        raise UserError(
            f"data.root: {root} holds images of {count} classes, at least 2 are needed; "
            f"expected {root}/<class>/<image> or a CSV file with the columns path,label"
        )
    roles = np.asarray(splits) if splits else np.where(labels < count // 2, "train", "test")
    _check_roles(root, set(roles.tolist()))
    place = root if root.is_dir() else root.parent
    return ImageIndex(name="folder", images=files, labels=labels, roles=roles, root=place)


def _class_folders(root: Path) -> tuple[list[Path], list[str], list[str]]:
    files, names = [], []
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        if folder.name.startswith("."):
            continue
        for file in sorted(folder.rglob("*")):
            hidden = any(part.startswith(".") for part in file.relative_to(root).parts)
            if file.suffix.lower() in SUFFIXES and not hidden:
                files.append(file)
                names.append(folder.name)
    return files, names, []


def _csv(path: Path) -> tuple[list[Path], list[str], list[str]]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or []
        lacking = [column for column in ("path", "label") if column not in columns]
        if lacking:
            raise UserError(
                f"data.root: {path} has no column '{lacking[0]}'{nearest(lacking[0], columns)}; "
                f"needed are path,label and, if wanted, split"
            )
        rows = list(reader)
    for number, row in enumerate(rows, start=2):
        if not row["path"] or not row["label"] or ("split" in columns and not row["split"]):
            raise UserError(f"data.root: {path}, line {number}: a value is missing; fill it in")
    files = [path.parent / row["path"].strip() for row in rows]
    missing = missing_files(files)
    if missing:
        raise UserError(
            f"data.root: {len(missing)} of {len(files)} images of {path} do not exist, "
            f"first {missing[0]}; paths are relative to the folder of the CSV file"
        )
    splits = [row["split"].strip() for row in rows] if "split" in columns else []
    return files, [row["label"].strip() for row in rows], splits


def _labels(names: list[str]) -> tuple[np.ndarray, int]:
    numbers = all(name.isascii() and name.isdigit() for name in names)
    keys = [int(name) for name in names] if numbers else names
    found, labels = np.unique(np.asarray(keys), return_inverse=True)
    return labels.astype(np.int64), len(found)


def _check_roles(root: Path, roles: set[str]) -> None:
    unknown = roles - set(ROLES)
    if unknown:
        name = min(unknown)
        raise UserError(
            f"data.root: {root} has a split '{name}'{nearest(name, ROLES)}; "
            f"valid are {', '.join(ROLES)}"
        )
    if "train" not in roles:
        raise UserError(f"data.root: {root} has no image with split 'train'; mark some")
    if not (roles & {"test"} or roles >= {"query", "gallery"}):
        raise UserError(
            f"data.root: {root} has no unseen images; mark some with split 'test', "
            f"or some with 'query' and some with 'gallery'"
        )
