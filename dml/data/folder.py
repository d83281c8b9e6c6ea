"""A user's images: one folder per class, or a CSV file with path, label and optionally split."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from dml.core.errors import UserError, first_line
from dml.data.image_index import ROLES, ImageIndex
from dml.data.published_dataset import find_missing
from dml.retrieval.class_labels import check_names

SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif"),
    *(".tif", ".tiff", ".webp", ".ppm", ".pgm"),
)
BOX = ["x_1", "y_1", "x_2", "y_2"]  # columns of a CSV file
log = logging.getLogger(__name__)


def read_folder(root: str | Path, split_seed: int | None = None) -> ImageIndex:
    """Returns the index of a user's images.

    `root` is one of

    - a folder `<class>/<image>`,
    - a folder `<split>/<class>/<image>` with the splits train and test, or train, query, gallery,
    - a CSV file with the columns path (relative to the CSV's folder, or absolute), label and,
      optionally, split, and x_1, y_1, x_2, y_2 in pixels for boxes in upright images.

    Without splits the first half of the classes is for training; protocols validate on the last of
    these. `1` and `01` are two classes. A class folder may have subfolders. Hidden files and
    folders are ignored.

    Args:
        root: the folder, or the CSV file.
        split_seed: shuffles the order of the classes, which depends on nothing but their names;
            None: alphabetical, or numerical if all names are whole numbers.

    Raises:
        UserError: `root` or a file does not exist, the CSV file is invalid, there are fewer than
            two classes, a class is in both training and test, or the splits leave nothing to
            retrieve.
    """
    root = Path(root)
    if not root.exists():
        raise UserError(f"data.root: no folder or CSV file {root}; set it with data.root=<path>")
    table = _read_folders(root) if root.is_dir() else _read_csv(root)
    files = table["path"].tolist()
    if missing := find_missing(files):
        _refuse(
            root,
            f"{len(missing)} of {len(files)} images do not exist, first {missing[0]}"
            + ("" if root.is_dir() else "; paths are relative to the folder of the CSV file"),
        )
    return index_table(root, table, split_seed)


def index_table(root: Path, table: pd.DataFrame, split_seed: int | None) -> ImageIndex:
    """Returns the index of a table with the columns path, label and, optionally, split.

    Raises:
        UserError: as `read_folder`, whose `split_seed` it takes too.
    """
    names = _class_names(table["label"])
    if split_seed is not None:
        names.sort(key=lambda name: hashlib.sha256(f"{split_seed} {name}".encode()).digest())
    if len(names) < 2:
        _refuse(
            root,
            f"images of {len(names)} classes, at least 2 are needed: <class>/<image> or "
            f"<split>/<class>/<image> in a folder, where images are {' '.join(SUFFIXES)}, or a "
            f"CSV file with the columns path,label",
        )
    labels = pd.Categorical(table["label"], categories=names).codes.astype(np.int64)
    if "split" in table:
        roles = table["split"].to_numpy(str)
        splits = {*roles}
        if splits not in ({"train", "test"}, {"train", "query", "gallery"}):
            _refuse(
                root,
                f"the splits are {', '.join(sorted(splits))}; expected 'train' and 'test', or "
                f"'train', 'query' and 'gallery'",
            )
    else:
        roles = np.where(labels < len(names) // 2, "train", "test")
    _check_classes(root, labels, roles, names)
    folder = root if root.is_dir() else root.parent
    return ImageIndex(
        name=folder.resolve().name or "folder",
        images=table["path"].tolist(),
        labels=labels,
        roles=roles,
        own_split="split" in table,
        root=folder,
        fingerprint_name="folder",
    )


def list_images(
    source: str | Path | Sequence[Any] | np.ndarray,
) -> tuple[list[Path], dict[str, str]]:
    """Returns the images of a source, and path → name of the class, empty if classes are unknown.

    Args:
        source: a folder, searched with its subfolders, whose images have the class `<class>` if all
            are in `<class>/` or `<split>/<class>/`; a CSV file with the column path and, for
            classes, label; a text file with a path per line; one image; or paths. Paths in a file
            are absolute, or relative to its folder.

    Raises:
        UserError: there is no such file, it cannot be read, or an image or all images are missing.
    """
    place, labels = Path(source) if isinstance(source, str | Path) else Path(), []
    if not isinstance(source, str | Path):
        files = [Path(file) for file in source]
    elif place.is_dir():
        files, folders = _walk(place)
        level = int({parts[0] for parts in folders if parts} <= {*ROLES})
        if all(len(parts) > level for parts in folders):
            labels = [parts[level] for parts in folders]
    elif place.name.lower().endswith(SUFFIXES):
        files = [place]
    elif place.suffix.lower() == ".csv":
        table = _read_csv(place, ("path",))
        files, labels = table["path"].tolist(), table.get("label", pd.Series()).tolist()
    else:
        try:
            lines = place.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, ValueError) as error:
            raise UserError(f"images: {place} is no folder, image or list of paths") from error
        files = [place.parent / line.strip() for line in lines if line.strip()]
    if not files:
        raise UserError(f"images: none in {source}; their names end in {' '.join(SUFFIXES)}")
    if missing := find_missing(files):
        raise UserError(f"images: {len(missing)} of {len(files)} do not exist, first {missing[0]}")
    return files, dict(zip(map(str, files), labels, strict=False))


def _read_csv(path: Path, required: Sequence[str] = ("path", "label")) -> pd.DataFrame:
    """Returns path, label and, if given, split of the images in a CSV file.

    The file is UTF-8 with a header, separated by commas, semicolons or tabs. Spaces around a value
    are ignored, and other columns after a warning; labels are names, never numbers. An image may
    be listed with several boxes (`dml.data.image_index.split_box`).

    Args:
        path: the file; the paths in it are absolute, or relative to its folder.
        required: columns that it must have.

    Raises:
        UserError: the file is not a table of this form.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        with warnings.catch_warnings(action="error"):  # a row with too many values
            options = {"dtype": str, "keep_default_na": False, "index_col": False}
            table = pd.read_csv(io.StringIO(text), sep=delimiter, **options)
    except (OSError, ValueError, pd.errors.ParserWarning) as error:
        _refuse(path, f"no table of comma-separated values in UTF-8 ({first_line(error)})")
    table = table.rename(columns=str.strip)
    columns = [name for name in ("path", "label", "split") if name in table]
    if not {*required} <= {*columns}:
        _refuse(
            path,
            f"the first line must name the columns {','.join(required)} and, optionally, split; "
            f"they are: {', '.join(table)[:80]}",
        )
    columns += BOX if {*BOX} <= {*table} else []
    if unused := [name for name in table if name not in columns]:
        log.warning("%s: columns that are not used: %s", path, ", ".join(unused))
    table = table[columns].apply(lambda column: column.str.strip()).replace("", None)
    table = table.dropna(how="all")
    for row in table[table.isna().any(axis=1)].to_numpy(str):
        _refuse(path, f"a value is missing: {', '.join(row)}")
    try:
        check_names(table.get("label", ()))
    except ValueError as error:
        _refuse(path, str(error))
    if {*BOX} <= {*columns}:
        try:
            corners = table[BOX].astype(float).clip(0).round().astype(int).astype(str)
        except ValueError as error:
            _refuse(path, f"a box is not four numbers ({first_line(error)})")
        table["path"] += "#" + corners.agg(",".join, axis=1)
    table["path"] = [path.parent / os.path.normpath(file) for file in table["path"]]
    for file in table["path"][table["path"].duplicated()]:
        _refuse(path, f"{file} is listed twice; remove one line")
    return table


def _read_folders(root: Path) -> pd.DataFrame:
    """Returns path, label and, if the top folders are splits, split of the images in a folder."""
    table = pd.DataFrame(zip(*_walk(root), strict=True), columns=["path", "parts"])
    folders = {parts[0] for parts in table["parts"] if parts}
    level = int(len(folders & {*ROLES}) > 1)
    if level and (others := folders - {*ROLES}):
        _refuse(
            root,
            f"the folder '{min(others)}' is next to splits; splits are {', '.join(ROLES)}: rename "
            f"it, or move it out",
        )
    table = table[table["parts"].str.len() > level]
    names = ["split", "label"][1 - level :]
    return table.assign(**{name: table["parts"].str[i] for i, name in enumerate(names)})


def _walk(root: Path) -> tuple[list[Path], list[tuple[str, ...]]]:
    """Returns the images below a folder, and for each the names of the folders in between."""

    def fail(error: OSError) -> NoReturn:
        raise UserError(f"data.root: cannot read {error.filename}: {error.strerror}") from error

    files = []
    for parent, folders, names in os.walk(root, onerror=fail, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        images = [n for n in names if not n.startswith(".") and n.lower().endswith(SUFFIXES)]
        files += [Path(parent, name) for name in images]
    files.sort()
    return files, [file.relative_to(root).parts[:-1] for file in files]


def _class_names(labels: Iterable[str]) -> list[str]:
    """Returns the names of the classes in the order of their labels."""
    names = set(labels)
    if not all(name.isascii() and name.isdigit() for name in names):
        return sorted(names)
    # Numerical order without conversion: names may exceed the range of int64.
    return sorted(names, key=lambda name: (len(name.lstrip("0")), name.lstrip("0"), name))


def _check_classes(root: Path, labels: np.ndarray, roles: np.ndarray, names: Sequence[str]) -> None:
    """Checks that the test classes are unseen, and that some query has a relevant image."""
    trained = np.isin(roles, "train")
    shared = np.intersect1d(labels[trained], labels[~trained])
    if len(shared):
        shown = ", ".join(names[label] for label in shared[:5])
        _refuse(
            root,
            f"{len(shared)} classes are in both training and test ({shown}); scores are of unseen "
            f"classes: assign each class to one side, or remove the splits to halve the classes",
        )
    if (roles == "query").any():
        if not np.isin(labels[roles == "query"], labels[roles == "gallery"]).any():
            _refuse(root, "no query has an image of its class in the gallery; add some")
    elif np.bincount(labels[~trained]).max() < 2:
        _refuse(root, "no unseen class has two images, so that nothing can be retrieved; add some")


def _refuse(root: Path, problem: str) -> NoReturn:
    raise UserError(f"data.root: {root}: {problem}")
