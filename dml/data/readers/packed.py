"""A user's images in tar shards as of webdataset, or in Parquet tables as of Hugging Face."""

from __future__ import annotations

import glob
import json
import logging
import os
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd

from dml.core.class_labels import check_names
from dml.core.counts import count_of, verb_for
from dml.core.errors import UserError, first_line
from dml.core.file_formats import find_archive, find_table
from dml.core.plain_text import show_line
from dml.core.regular_files import open_regular
from dml.data.image_formats import is_readable
from dml.data.image_names import ImageNames
from dml.data.packed_images import Packed, join_packed
from dml.data.readers.folder_names import parse_split
from dml.data.readers.packed_listing import Listing, Row, list_files
from dml.data.unpacked_tables import IMAGE, count_bytes, unpack_table

TAR, PARQUET = ".tar", ".parquet"
FORMATS = {TAR: "a tar archive", PARQUET: "a Parquet file"}
BLOCK = 512  # bytes of a header in an archive
SMALL = 1 << 26  # bytes of decoded images, up to which those of tables stay in memory
LABELS = (".cls", ".json")
log = logging.getLogger(__name__)


def find_packed(root: str | Path) -> list[Path]:
    """Returns the archives and tables that a path or a pattern (`shards-*.tar`) names; may be none.

    Raises:
        UserError: nothing has a name of the pattern, or files have another format than their names.
    """
    path = Path(root)
    suffix = path.suffix.lower()
    if suffix not in (TAR, PARQUET) or path.is_dir():
        return []
    if path.exists():
        files = [path]
    elif glob.has_magic(str(root)):
        files = sorted(map(Path, glob.glob(str(root))))
        if not files:
            _refuse(root, "no file has a name of this pattern; set it with data.root='<pattern>'")
    else:
        return []
    for file in files:
        other = find_table(file) or find_archive(file)
        if other not in ("", FORMATS[suffix]):
            _refuse(file, f"it is {other}, not {FORMATS[suffix]}; name it by its format")
    return files


class PackedImages(NamedTuple):
    """The images of shards or tables, and what these say of them.

    Attributes:
        names: N names (`dml.data.packed_images`).
        table: label and, if they are there, split and category of the images.
        notes: what slows reading.
    """

    names: ImageNames
    table: pd.DataFrame
    notes: list[str]


def read_packed_images(
    root: str | Path, files: Sequence[Path], labeled: bool, folder: Path | None = None
) -> PackedImages:
    """Returns the images of archives or tables.

    An archive has images `<key>.jpg` (`.png` …) and for each `<key>.cls`, a class as text, or
    `<key>.json`, an object with `label` and, optionally, `split` and `category`. Other members are
    ignored; a note counts keys with a label and no image that can be read. A table has the columns
    `image` (a struct with `bytes`, or binary) and `label` (text, a number, or a ClassLabel of
    Hugging Face) and, optionally, `split` and `category`. Without splits, several files may have
    theirs in their names (`train-00000.tar`, `test-00000.tar`).

    Args:
        root: for messages.
        files: of one format.
        labeled: whether every image must have a label; False: labels are left out unless all have.
        folder: of the stored list, from which files that have not changed are not read again.
            Tables of more than `SMALL` are unpacked, each beside itself, to be read at random.
            None: nothing is stored.

    Raises:
        UserError: a file is damaged, has other columns or no images, or a label, a split or a
            member is missing, doubled or of another type.
    """
    without_image: dict[Path, list[str]] = {}
    is_table = files[0].suffix.lower() == PARQUET
    read = _read_table if is_table else partial(_read_archive, without_image=without_image)
    listing = list_files(files, read, folder, without_image)
    if not len(listing.names):
        _refuse(root, "there are no images in it; their names end in .jpg, .png …")
    notes = [*_describe_without_image(without_image)]
    if is_table and folder is not None:
        notes += _unpack_tables(files)
    columns = {}
    if _has_labels(root, listing, labeled):
        columns["label"] = listing.labels
    if _has_splits(root, listing):
        columns["split"] = listing.splits
    elif splits := _splits_of_names(files):
        columns["split"] = pd.Categorical(np.repeat(splits, listing.counts))
        notes.append("the splits are those in the names of the files")
    if len(listing.categories.categories):
        columns["category"] = listing.categories
    table = pd.DataFrame(columns, index=range(len(listing.names)))
    return PackedImages(listing.names, table, notes)


def _has_labels(root: str | Path, listing: Listing, labeled: bool) -> bool:
    """Returns whether all images have labels, which need not be if none are needed."""
    missing = np.flatnonzero(listing.labels.codes < 0)
    if len(missing) and not labeled:
        if len(missing) < len(listing.names):
            name = _show(listing, missing[0])
            log.warning("images: no labels are written, since %s has none", name)
        return False
    if len(missing):
        count = f"{len(missing)} of {len(listing.names)} images have no label"
        _refuse(root, f"{count}, first {_show(listing, missing[0])}; give a class to each")
    number, text = np.argmax(listing.are_numbers), np.argmin(listing.are_numbers)
    if listing.are_numbers[number] != listing.are_numbers[text]:
        _refuse(
            root,
            f"labels are numbers and texts ({listing.labels[number]} of {_show(listing, number)}, "
            f"'{show_line(listing.labels[text])}' of {_show(listing, text)}); use one of both",
        )
    try:
        check_names(listing.labels.categories)
    except ValueError as error:
        _refuse(root, str(error))
    return True


def _has_splits(root: str | Path, listing: Listing) -> bool:
    """Returns whether the images have splits; none or all have."""
    missing = np.flatnonzero(listing.splits.codes < 0)
    if len(missing) and len(missing) < len(listing.names):
        count = f"{len(missing)} of {len(listing.names)} images have no split"
        _refuse(root, f"{count}, first {_show(listing, missing[0])}; give one to each, or to none")
    return not len(missing)


def _splits_of_names(files: Sequence[Path]) -> list[str]:
    """Returns the split in the name of each file; empty if not all have one, or all have the same.

    As in `train-00000-of-00002.parquet`, `test-00000-of-00001.parquet`.
    """
    splits = []
    for file in files:
        parsed = parse_split(file.stem)
        if parsed is None:
            return []
        splits.append(parsed.split)
    return splits if len(set(splits)) > 1 else []


def _describe_without_image(keys: dict[Path, list[str]]) -> Iterator[str]:
    """Yields a note on keys of archives that have a label, and no image that can be read."""
    count = sum(map(len, keys.values()))
    if count:
        file, names = next(iter(keys.items()))
        have = verb_for(count, "has", "have")
        yield (
            f"{count_of(count, 'key')} {have} a label and no image that can be read, first "
            f"{show_line(names[0].lstrip('/'))} in {file}"
        )


def _read_archive(file: Path, without_image: dict[Path, list[str]]) -> Iterator[Row]:
    """Yields the images of a tar archive, in its order.

    Args:
        file: the archive.
        without_image: gets the keys that have a label alone.
    """
    images: dict[str, tuple[str, Packed]] = {}
    texts: dict[str, dict[str, bytes]] = {}
    with open_regular(file) as opened:
        for member, packed in _find_places(file, opened):
            folder, name = os.path.split(member)
            stem, dot, extension = name.partition(".")
            key, suffix = f"{folder}/{stem}", f"{dot}{extension}".lower()
            is_image = is_readable(name)
            is_used = is_image or suffix in LABELS
            if not stem or not is_used:
                continue
            known = key in images if is_image else suffix in texts.get(key, {})
            if known:
                shown = show_line(member)
                _refuse(file, f"it has two members for {shown}; a key names one image")
            if is_image:
                images[key] = member, packed
            else:
                opened.seek(packed.start)
                texts.setdefault(key, {})[suffix] = opened.read(packed.size)
    missing = sorted(texts.keys() - images.keys())
    if missing:
        without_image[file] = missing
    for key, (name, packed) in images.items():
        yield _read_texts(join_packed(packed, name), texts.get(key, {}))


def _find_places(file: Path, opened: Any) -> Iterator[tuple[str, Packed]]:
    """Yields the names of the files in an archive, and where they are.

    GNU tar stores the second name of a file as a link to the first one.
    """
    places: dict[str, Packed] = {}
    for member in _list_members(file, opened):
        if member.isreg():
            places[member.name] = Packed(file, member.offset_data, member.size)
            yield member.name, places[member.name]
        elif member.islnk() and member.linkname in places:
            yield member.name, places[member.linkname]


def _list_members(file: Path, opened: Any) -> Iterator[tarfile.TarInfo]:
    """Yields the members of an archive that is damaged nowhere.

    Raises:
        UserError: it is cut off, or has bytes that are no header.
    """
    try:
        with tarfile.open(fileobj=opened, mode="r:") as archive:
            yield from archive
            end = archive.offset
    except (tarfile.TarError, EOFError, ValueError) as error:
        _refuse(file, f"it is damaged ({first_line(error)}); copy it again")
    # tarfile takes what is no header for the end
    opened.seek(end)
    if opened.read(BLOCK).strip(b"\0"):
        _refuse(file, f"it is damaged at byte {end:,}; copy it again")


def _read_texts(path: Path, texts: dict[str, bytes]) -> Row:
    """Returns an image with the label, split and category of its `.cls` and `.json`."""
    try:
        named = texts.get(".cls", b"").decode().strip()
        options = json.loads(texts.get(".json", b"{}"))
        if not isinstance(options, dict):
            raise ValueError("its .json is no object")
        label = options.get("label")
        if not isinstance(label, int | str | None) or isinstance(label, bool):
            raise ValueError(f"its label is {json.dumps(label)[:40]}, no text or whole number")
        if named and label is not None and str(label).strip() != named:
            raise ValueError(f"its .cls says {named}, its .json {label}")
    except ValueError as error:
        _refuse(path, first_line(error))
    text = named if label is None else str(label).strip()
    split, category = _text(options.get("split")), _text(options.get("category"))
    return Row(path, text or None, isinstance(label, int), split, category)


def _read_table(file: Path) -> Iterator[Row]:
    """Yields the images of a Parquet table, in its order, without reading their bytes."""
    table = _read_columns(file)
    columns = []
    for name in ("label", "split", "category", IMAGE):
        is_there = name in table.column_names
        columns.append(table.column(name).to_pylist() if is_there else [None] * table.num_rows)
    classes = _class_names(table.schema)
    for row, (label, split, category, image) in enumerate(zip(*columns, strict=True)):
        if not isinstance(label, int | str | None) or isinstance(label, bool):
            _refuse(file, f"labels are of type {type(label).__name__}, no texts or numbers")
        name = os.path.basename((image or {}).get("path") or "")
        yield Row(
            join_packed(Packed(file, row, None), name),
            _name_label(label, classes),
            isinstance(label, int) and not classes,
            _text(split),
            _text(category),
        )


def _read_columns(file: Path) -> Any:
    """Returns a table of pyarrow: what a Parquet file says of its images, without their bytes."""
    if find_spec("pyarrow") is None:
        _refuse(file, "reading Parquet needs pyarrow: pip install pyarrow")
    from pyarrow import parquet

    try:
        opened = parquet.ParquetFile(file)
        problem = _why_no_images(opened.schema_arrow)
        if problem:
            _refuse(file, problem)
        wanted = ("label", "split", "category", f"{IMAGE}.path")
        stored = [*opened.schema_arrow.names, *(column.path for column in opened.schema)]
        return opened.read(columns=[name for name in wanted if name in stored])
    except (OSError, ValueError) as error:
        _refuse(file, f"it is damaged ({first_line(error)}); copy it again")


def _why_no_images(schema: Any) -> str:
    """Returns why a table with this schema (pyarrow) has no images; empty if it has."""
    from pyarrow import types

    if IMAGE not in schema.names:
        return f"it has no column image, but {', '.join(schema.names)[:80]}"
    kind = schema.field(IMAGE).type
    if types.is_binary(kind) or types.is_large_binary(kind):
        return ""
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        return ""
    return f"column image is of type {str(kind)[:80]}; it needs the bytes of images"


def _class_names(schema: Any) -> list[str]:
    """Returns the names that Hugging Face stores of the numbers in `label`; none without them."""
    try:
        features = json.loads(schema.metadata[b"huggingface"])["info"]["features"]
        return [str(name) for name in features["label"]["names"]]
    except (KeyError, TypeError, ValueError):
        return []


def _name_label(label: int | str | None, classes: Sequence[str]) -> str | None:
    """Returns the name of a label; None of a number that names no class, such as −1."""
    if not isinstance(label, int) or not classes:
        return _text(label)
    return classes[label] if 0 <= label < len(classes) else None


def _unpack_tables(files: Sequence[Path]) -> list[str]:
    """Unpacks tables that do not stay in memory (`dml.data.unpacked_tables`); returns notes."""
    sizes = [count_bytes(file) for file in files]
    if sum(sizes) <= SMALL:
        return []
    for file in files:
        if not unpack_table(file):
            return [
                f"{file} cannot be unpacked to {file.parent / '.cache'}, where {sum(sizes):,} "
                f"bytes must be free and may be written; shuffled, each image decodes a group of "
                f"rows: free them, or write tar shards"
            ]
    return []


def _text(value: Any) -> str | None:
    """Returns a value as text; None for none and for empty texts."""
    text = "" if value is None else str(value).strip()
    return text or None


def _show(listing: Listing, row: np.integer[Any]) -> str:
    return show_line(str(listing.names[int(row)]))


def _refuse(root: str | Path, problem: str) -> NoReturn:
    raise UserError(f"data.root: {show_line(str(root))}: {problem}")
