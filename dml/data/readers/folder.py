"""A user's images: folders of classes, or a CSV file with path, label, and split and category."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from dml.core.class_labels import check_names
from dml.core.counts import count_of, verb_for
from dml.core.errors import UserError, first_line
from dml.core.file_formats import find_archive, find_table
from dml.core.missing_paths import describe_missing
from dml.core.plain_text import show_line
from dml.core.regular_files import is_shell_pipe, read_regular_text
from dml.core.text_columns import plain_text_columns
from dml.data.image_formats import is_readable, readable_suffixes
from dml.data.image_index import TESTED, ImageIndex, file_of, split_box
from dml.data.image_names import ImageNames, as_names, texts_of
from dml.data.readers.folder_names import (
    VALIDATION,
    find_missing_classes,
    find_splits,
    parse_split,
    place_validation,
)
from dml.data.readers.image_tree import describe_left_out, find_missing, walk_images
from dml.data.readers.packed import find_packed, read_packed_images

BOX = ["x_1", "y_1", "x_2", "y_2"]  # columns of a CSV file
NO_NUMBER = (None, "nan", "NaN", "NA", "None", "null")  # as software writes a missing number
EVALUATED = {"test"}, {"query", "gallery"}  # splits beside training, or alone
OUTSIDE = "outside of folders of classes"
log = logging.getLogger(__name__)


@plain_text_columns()
def read_folder(
    root: str | Path, split_seed: int | None = None, shared_classes: bool = False
) -> ImageIndex:
    """Returns the index of a user's images.

    `root` is one of

    - a folder `<class>/<image>`,
    - a folder `<split>/<class>/<image>` with the splits train and test, or train, query, gallery,
      in any spelling (`Train`, `cars_train`, `testing`; see `folder_names.find_splits`),
    - a CSV file with the columns path (relative to the CSV's folder, or absolute), label and,
      optionally, split, category, and x_1, y_1, x_2, y_2 in pixels for boxes in upright images.
      Without the split train it can be evaluated, not trained on.

    - tar shards or Parquet tables with images (`dml.data.readers.packed`), a file or a pattern such
      as `shards-*.tar`.

    Without splits the first half of the classes is for training; protocols validate on the last of
    these. `1` and `01` are two classes. A class folder may have subfolders. Hidden files and
    folders are ignored, and folders of disks, archives and photo servers (`@eaDir`).

    Validation images (`val`, `valid`, `validation`) are the test where there is no other, else left
    out: protocols take validation classes from the training classes. Notes of the index say so, and
    count what was left out.

    Args:
        root: the folder, or the CSV file.
        split_seed: shuffles the order of the classes, which depends on nothing but their names;
            None: alphabetical, or numerical if all names are whole numbers.
        shared_classes: whether a class may be in both training and test, for the protocol
            `closed_set`, which supplies it.

    Raises:
        UserError: `root` or a file does not exist, the CSV file is invalid, there are fewer than
            two classes, folders are neither splits nor classes, a class is in both training and
            test, or the splits leave nothing to retrieve.
    """
    if packed := find_packed(root):
        return _read_packed_index(root, packed, split_seed, shared_classes)
    root = Path(root)
    if root.is_symlink() and not root.exists():
        raise UserError(f"data.root: {root} is a link to nothing or to itself; link it again")
    if not root.exists():
        problem = describe_missing(root, "set it with data.root=<folder or CSV file>")
        raise UserError(f"data.root: {problem}")
    files: Sequence[Path]
    if root.is_dir():
        files, table = _read_folders(root)
        advice = ""
    else:
        files, table = _read_csv(root)
        advice = "; paths are relative to the folder of the CSV file"
    missing = find_missing(files)
    if missing:
        first = show_line(str(missing[0]))
        _refuse(root, f"{len(missing)} of {len(files)} images do not exist, first {first}{advice}")
    index = index_table(root, table, split_seed, shared_classes, files)
    notes = [f"data: {note}" for note in table.attrs["notes"]]
    return replace(index, notes=(*notes, *index.notes))


def _read_packed_index(
    root: str | Path, files: Sequence[Path], split_seed: int | None, shared_classes: bool
) -> ImageIndex:
    """Returns the index of images in tar shards or Parquet tables."""
    folder = files[0].parent / ".cache"
    images = read_packed_images(root, files, labeled=True, folder=folder)
    index = index_table(Path(root), images.table, split_seed, shared_classes, images.names)
    notes = [f"data: {note}" for note in images.notes]
    return replace(index, notes=(*notes, *index.notes))


def index_table(
    root: Path,
    table: pd.DataFrame,
    split_seed: int | None,
    shared_classes: bool = False,
    images: Sequence[Path] | None = None,
) -> ImageIndex:
    """Returns the index of a table with the columns path, label and, optionally, split, category.

    With `images` the table needs no column path.

    Raises:
        UserError: as `read_folder`, whose `split_seed` and `shared_classes` it takes too.
    """
    names = _class_names(table["label"].unique())
    if split_seed is not None:
        names.sort(key=lambda name: _hash_name(name, split_seed))
    if len(names) < 2:
        _refuse(
            root,
            f"images of {count_of(len(names), 'class')}, at least 2 are needed: <class>/<image> or "
            f"<split>/<class>/<image> in a folder, where names of images end in .jpg, .png …, or a "
            f"CSV file with the columns path,label",
        )
    labels = pd.Categorical(table["label"], categories=names).codes.astype(np.int64)
    notes: list[str] = []
    if "split" in table:
        roles, notes = _read_roles(table["split"])
        splits = set(roles)
        if "train" in splits:
            splits -= {"train", "unused"}
        if splits not in EVALUATED:
            named = ", ".join(sorted(table["split"].unique()))
            _refuse(
                root,
                f"the splits are {named}; expected 'train' and 'test', or 'train', 'query' and "
                f"'gallery'; without 'train' they can be evaluated only",
            )
    else:
        roles = np.where(labels < len(names) // 2, "train", "test")
    if not shared_classes:
        _check_classes(root, labels, roles, names)
    folder = root if root.is_dir() else root.parent
    return ImageIndex(
        name=folder.resolve().name or "folder",
        images=table["path"].tolist() if images is None else images,
        labels=labels,
        roles=roles,
        own_split="split" in table,
        root=folder,
        fingerprint_name="folder",
        notes=tuple(notes),
        class_names=tuple(names),
        categories=table["category"].tolist() if "category" in table else None,
        shared_classes=shared_classes,
    )


def _read_roles(names: pd.Series) -> tuple[np.ndarray, list[str]]:
    """Returns the role of each image by the name of its split in any spelling, and notes.

    Names that mean no split stay as they are.
    """
    roles = {}
    for name in names.unique():
        split = parse_split(name)
        roles[name] = name if split is None else split.split
    notes = []
    validation = [name for name, role in roles.items() if role == VALIDATION]
    if validation:
        role, note = place_validation(roles.values())
        roles |= dict.fromkeys(validation, role)
        notes = [f"data: '{name}' {note}" for name in validation]
    return names.map(roles).to_numpy(str), notes


def list_images(
    source: str | Path | Sequence[Any] | np.ndarray,
) -> tuple[Sequence[Path], dict[str, str]]:
    """Returns the images of a source, and path → name of the class, empty if classes are unknown.

    Args:
        source: a folder, searched with its subfolders, whose images have the class `<class>` if all
            are in `<class>/` or `<split>/<class>/`; a CSV file with the column path and, for
            classes, label; a text file with a path per line; one image; or paths. Paths in a file
            are absolute, or relative to its folder.

    Raises:
        UserError: there is no such file, it cannot be read, or an image or all images are missing.
    """
    labels: list[str] = []
    files: Sequence[Path]
    if isinstance(source, str | Path):
        files, labels = _list_source(Path(source))
    else:
        files = [Path(file) for file in source]
    if not files:
        endings = " ".join(readable_suffixes())
        raise UserError(f"images: none in {source}; their names end in {endings}")
    missing = find_missing(files)
    if missing:
        raise UserError(f"images: {_describe_no_files(missing, len(files))}")
    _refuse_repeated(files)
    return files, dict(zip(texts_of(files), labels, strict=False))


def _refuse_repeated(files: Sequence[Path]) -> None:
    """Raises UserError for an image that is listed twice, and would be a copy of itself."""
    names = [*texts_of(files)]
    if len(set(names)) == len(names):
        return
    first = next(name for name, count in Counter(names).items() if count > 1)
    raise UserError(f"images: {show_line(first)} is listed twice; name it once")


def _describe_no_files(missing: Sequence[Path], total: int) -> str:
    """Returns how many of some images are no files, and what the first is instead."""
    first = file_of(missing[0])
    if os.path.isdir(first):
        shown = show_line(str(first))
        problem = f"{shown} is a folder; name the images in it, or the folder alone"
    elif os.path.islink(first):
        problem = f"{show_line(str(first))} is a link to a file that does not exist; remove it"
    elif os.path.lexists(first):
        problem = f"{show_line(str(first))} is no regular file; remove it"
    else:
        problem = describe_missing(first)
    if total == 1:
        return problem
    return f"{len(missing)} of {total} are no files, first: {problem}"


def _list_source(source: Path) -> tuple[Sequence[Path], list[str]]:
    """Returns the images of a folder or a file, and their classes if they are known."""
    if os.path.isdir(source):
        return _list_folder(source)
    if packed := find_packed(source):
        images = read_packed_images(source, packed, labeled=False)
        return images.names, images.table.get("label", pd.Series()).tolist()
    if is_readable(source.name):
        return [source], []
    if source.suffix.lower() == ".csv":
        files, table = _read_csv(source, ("path",))
        for note in table.attrs["notes"]:
            log.warning("images: %s", note)
        return files, table.get("label", pd.Series()).tolist()
    return _list_lines(source), []


def _list_folder(source: Path) -> tuple[ImageNames, list[str]]:
    """Returns the images of a folder, and their classes if they are known."""
    files, folders, left_out = walk_images(source)
    if left_out:
        log.warning("images: %s", describe_left_out(source, left_out))
    labels = _find_labels(folders)
    if not labels and (reason := _why_unlabeled(files, folders)):
        log.warning("images: no labels are written, since %s", reason)
    return files, labels


def _list_lines(source: Path) -> list[Path]:
    """Returns the images that a text file, or a pipe of the shell, lists line by line."""
    if not is_shell_pipe(source) and (problem := _find_other_format(source)):
        raise UserError(f"images: {source}: {problem}")
    try:
        text = read_regular_text(source, typed=True, encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        if not os.path.lexists(source):
            raise UserError(f"images: {describe_missing(source)}") from error
        raise UserError(f"images: {source} is no folder, image or list of paths") from error
    folder = Path() if is_shell_pipe(source) else source.parent
    lines = [line.strip() for line in text.split("\n")]
    return [_locate(folder, line) for line in lines if line]


def _locate(folder: Path, name: str) -> Path:
    """Returns the path of a name in a list, which may be written as on Windows."""
    path = folder / os.path.normpath(name)
    if "\\" not in name or split_box(path)[0].exists():
        return path
    return folder / os.path.normpath(name.replace("\\", "/"))


def _find_labels(folders: Sequence[tuple[str, ...]]) -> list[str]:
    """Returns the class of each image by its folders; none if they are not known of all."""
    tops = _top_folders(folders)
    roles = find_splits(tops).roles
    if roles and roles.keys() != tops.keys():
        return []  # splits and others
    level = 1 if roles else 0
    if not all(len(parts) > level for parts in folders):
        return []
    return [parts[level] for parts in folders]


def _why_unlabeled(files: Sequence[Path], folders: Sequence[tuple[str, ...]]) -> str:
    """Returns why images have no class although there are folders; empty if there are none."""
    if not any(folders):
        return ""
    tops = _top_folders(folders)
    roles = find_splits(tops).roles
    others = sorted(tops.keys() - roles.keys())
    if roles and others:
        return f"the folder '{others[0]}' is beside folders of splits"
    level = 1 if roles else 0
    outside = [file for file, parts in zip(files, folders, strict=True) if len(parts) <= level]
    first = show_line(str(outside[0]))
    return f"{len(outside)} of {len(files)} images are {OUTSIDE}, first {first}"


def _top_folders(folders: Iterable[tuple[str, ...]]) -> dict[str, bool]:
    """Returns top folder → whether most of its images are in folders below it."""
    nested: Counter[str] = Counter()
    for parts in folders:
        if len(parts) > 1:
            nested[parts[0]] += 1
        elif parts:
            nested[parts[0]] -= 1
    return {name: count > 0 for name, count in nested.items()}


def _find_other_format(path: Path) -> str:
    """Returns what a file is, and what to do with it, if it is an archive or a file of arrays."""
    if path.suffix == ".npz":
        return "it is a file of arrays; data=features trains on features, instead of images"
    if archive := find_archive(path):
        return f"it is {archive}; unpack it, and give the folder of images"
    if table := find_table(path):
        return (
            f"it is {table}, no folder or table of images; write the images to files, or read them "
            f"by data.reader._target_ (docs/own_code.md)"
        )
    return ""


def _read_csv(
    path: Path, required: Sequence[str] = ("path", "label")
) -> tuple[Sequence[Path], pd.DataFrame]:
    """Returns the images in a CSV file, and their label, split and category if they are there.

    The file is UTF-8 with a header, separated by commas, semicolons or tabs. Spaces around a value
    are ignored, and other columns after a warning; labels are names, never numbers. A category may
    be missing. An image may be listed with several boxes (`dml.data.image_index.split_box`). Rows
    without a box are whole images; those without a label are left out, and counted in
    `attrs["notes"]`.

    Args:
        path: the file; the paths in it are absolute, or relative to its folder.
        required: columns that it must have.

    Raises:
        UserError: the file is not a table of this form.
    """
    if problem := _find_other_format(path):
        _refuse(path, problem)
    table = _select_columns(path, _parse_csv(path), required)
    notes: list[str] = []
    if "label" in table:
        table, notes = _leave_out_unlabeled(path, table, required)
    needed = table.drop(columns=[*BOX, "category"], errors="ignore")
    for row in table[needed.isna().any(axis=1)].to_numpy(str):
        _refuse(path, f"a value is missing: {', '.join(row)}")
    try:
        check_names(table.get("label", ()))
    except ValueError as error:
        _refuse(path, str(error))
    if BOX[0] in table:
        _append_boxes(path, table)
    table["path"] = [str(_locate(path.parent, file)) for file in table["path"]]
    for file in table["path"][table["path"].duplicated()]:
        _refuse(path, f"{file} is listed twice; remove one line")
    table.attrs["notes"] = tuple(notes)
    return as_names(table.pop("path")), table


def _leave_out_unlabeled(
    path: Path, table: pd.DataFrame, required: Sequence[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Returns the rows that have a label, and a note that counts the others.

    A column without any label is left out where none is required.
    """
    missing = table["label"].isna()
    if missing.all() and "label" not in required:
        return table.drop(columns="label"), []
    if not missing.any():
        return table, []
    if missing.all():
        _refuse(path, "no row has a label")
    first = show_line(str(table["path"][missing].iloc[0]))
    without = verb_for(missing.sum(), "has no label and is", "have no label and are")
    note = f"{missing.sum()} of {len(table)} rows of {path} {without} left out"
    return table[~missing].copy(), [f"{note}, first {first}"]


def _parse_csv(path: Path) -> pd.DataFrame:
    try:
        text = read_regular_text(path, encoding="utf-8-sig")
        delimiter = max(",;\t", key=text.partition("\n")[0].count)
        with warnings.catch_warnings(action="error"):  # a row with too many values
            options = {"dtype": str, "keep_default_na": False, "index_col": False}
            table = pd.read_csv(io.StringIO(text), sep=delimiter, **options)
    except (OSError, ValueError, pd.errors.ParserWarning) as error:
        _refuse(path, f"no table of comma-separated values in UTF-8 ({first_line(error)})")
    return table.rename(columns=str.strip)


def _select_columns(path: Path, table: pd.DataFrame, required: Sequence[str]) -> pd.DataFrame:
    """Returns the columns that are used, without spaces around values and without empty rows."""
    columns = [name for name in ("path", "label", "split") if name in table]
    if not set(required).issubset(columns):
        _refuse(
            path,
            f"the first line must name the columns {','.join(required)} and, optionally, split; "
            f"they are: {', '.join(table)[:80]}",
        )
    if set(BOX).issubset(table):
        columns += BOX
    needed = columns.copy()  # a row with a category alone is empty
    if "category" in table:
        columns.append("category")
    unused = [name for name in table if name not in columns]
    if unused:
        log.warning("%s: columns that are not used: %s", path, ", ".join(unused))
    used = table[columns]
    for name in columns:
        used[name] = used[name].str.strip()
    return used.replace("", None).dropna(how="all", subset=needed)


def _append_boxes(path: Path, table: pd.DataFrame) -> None:
    """Appends the box of each row to its path (`split_box`); rows without one are whole images."""
    boxed = ~table[BOX].isin(NO_NUMBER).all(axis=1)
    rows = table[boxed]
    numbers = rows[BOX].apply(pd.to_numeric, errors="coerce").replace([np.inf, -np.inf], np.nan)
    for row in rows[numbers.isna().any(axis=1)].to_numpy(str):
        _refuse(path, f"a box is not four numbers: {', '.join(row)}")
    if len(rows):
        corners = numbers.clip(0).round().astype(int).astype(str)
        table.loc[boxed, "path"] += "#" + corners.agg(",".join, axis=1)


def _read_folders(root: Path) -> tuple[ImageNames, pd.DataFrame]:
    """Returns the images in a folder, and their label and, if the top folders are splits, split.

    `attrs["notes"]` of the table says what was left out.
    """
    files, folders, left_out = walk_images(root)
    splits = find_splits(_top_folders(folders))
    if splits.problem:
        _refuse(root, splits.problem)
    level = 1 if splits.roles else 0
    if problem := find_missing_classes(folders, level):
        _refuse(root, problem)
    inside = np.array([len(parts) > level for parts in folders], bool)
    if not inside.all():
        left_out[OUTSIDE] += int((~inside).sum())
        files = files.take(np.flatnonzero(inside))
        folders = [parts for parts in folders if len(parts) > level]
    table = pd.DataFrame({"label": [parts[level] for parts in folders]}, dtype=object)
    if level:
        table["split"] = [parts[0] for parts in folders]
    table.attrs["notes"] = (describe_left_out(root, left_out),) if left_out else ()
    return files, table


def _class_names(labels: Iterable[str]) -> list[str]:
    """Returns the names of the classes in the order of their labels."""
    names = set(labels)
    if not all(name.isascii() and name.isdigit() for name in names):
        return sorted(names)
    return sorted(names, key=_as_number)


def _as_number(name: str) -> tuple[int, str, str]:
    """Returns a key of the numerical order, without a conversion: names may exceed int64."""
    digits = name.lstrip("0")
    return len(digits), digits, name


def _hash_name(name: str, seed: int) -> bytes:
    # A name on a disk may be no UTF-8.
    return hashlib.sha256(f"{seed} {name}".encode(errors="surrogateescape")).digest()


def _check_classes(root: Path, labels: np.ndarray, roles: np.ndarray, names: Sequence[str]) -> None:
    """Checks that the test classes are unseen, and that some query has a relevant image."""
    trained, tested = np.isin(roles, "train"), np.isin(roles, TESTED)
    shared = np.intersect1d(labels[trained], labels[tested])
    if len(shared):
        shown = ", ".join(names[label] for label in shared[:5])
        classes = f"{count_of(len(shared), 'class')} {verb_for(len(shared), 'is', 'are')}"
        _refuse(
            root,
            f"{classes} in both training and test ({shown}); scores are of unseen "
            f"classes: assign each class to one side, or remove the splits to halve the classes; "
            f"protocol=closed_set tests the classes that it trains on",
        )
    if (roles == "query").any():
        if not np.isin(labels[roles == "query"], labels[roles == "gallery"]).any():
            _refuse(root, "no query has an image of its class in the gallery; add some")
    elif np.bincount(labels[tested]).max() < 2:
        _refuse(root, "no unseen class has two images, so that nothing can be retrieved; add some")


def _refuse(root: Path, problem: str) -> NoReturn:
    raise UserError(f"data.root: {root}: {problem}")
