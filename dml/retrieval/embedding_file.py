"""The file of `dml.embed`: embeddings of images, with the views that training draws from.

Arrays of an `.npz` file, or columns of a `.parquet` file: `embeddings` N×D, `views` N×V×D if there
are any, `paths` N, if they are known `labels` N (names of classes) and `splits` N (`train`, …), and
`made_by`, a JSON text with the network and the settings. For `dml embed --append` also `roots`,
`file_sizes` and `file_times`, N each. A `.parquet` file with thumbnails has the columns of
`dml.retrieval.viewer_columns` too, which are not read.

Of `dml embed --compress`, `embeddings` are codes N×P, and `compression` is a JSON text by which
they are read (`dml.retrieval.compression`); of a `.parquet` file it is in the metadata, as
`made_by`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.core.atomic_io import replace_file
from dml.core.class_labels import ADVICE, check_class_labels
from dml.core.errors import UserError, first_line
from dml.core.file_formats import describe_no_arrays
from dml.core.npz_files import check_sizes, map_array
from dml.core.plain_text import print_plain
from dml.core.regular_files import open_regular
from dml.core.secrets import mask_options
from dml.retrieval.compression import Compression
from dml.retrieval.viewer_columns import METADATA, ViewerColumns

PARQUET = ".parquet"
GALLERY = "gallery_embeddings"
OF_FILES = {"roots": "U", "file_sizes": "i", "file_times": "i"}  # name → kind of its values
COLUMNS = ("paths", "labels")  # read for single rows in a search
SMALL = (*COLUMNS, "splits", *OF_FILES)  # read at once
COMPRESSION = "compression"
SHOWN = 6  # names of arrays in a message
ROWS = 4096  # written to a Parquet file at once


class ImageEmbeddings(NamedTuple):
    """Embeddings of images.

    Attributes:
        embeddings: N×D; of an `.npz` file on the disk, of which only what is used is read. Of a
            compressed file, which `open_embeddings` was asked not to decode, codes N×P.
        paths: N; row numbers for images without files.
        labels: N names of classes; None if they are not known.
        made_by: the network and the settings; empty for files of other software. It is text of the
            file: `dml.config.stored_network` checks it before it is used.
        views: N×V×D, of V augmentations of each image, as `embeddings`; None if there are none.
        splits: N roles of the images in their dataset; None if they are not known.
        roots: N folders, lists or images, by which the images were listed; None if they are not
            known.
        file_sizes: N bytes of the images' files; None if they are not known.
        file_times: N times of their last change, nanoseconds, −1 for one that is not known.
        compression: how the file stores the embeddings; None: as they are.
    """

    embeddings: np.ndarray
    paths: np.ndarray
    labels: np.ndarray | None
    made_by: dict[str, Any]
    views: np.ndarray | None = None
    splits: np.ndarray | None = None
    roots: np.ndarray | None = None
    file_sizes: np.ndarray | None = None
    file_times: np.ndarray | None = None
    compression: Compression | None = None

    @property
    def has_codes(self) -> bool:
        """Whether `embeddings` are codes that `compression` decodes."""
        return self.compression is not None and self.embeddings.dtype.kind != "f"

    def decode(self, rows: Any) -> np.ndarray:
        """Returns the embeddings of rows, which may be a slice: floating-point numbers."""
        part = self.embeddings[rows]
        if self.compression is not None and self.has_codes:
            return self.compression.decode(part)
        return part

    def check_indexed(self, path: str | Path) -> None:
        """Raises UserError if an index cannot be built of codes."""
        if self.compression is not None and not self.compression.form.is_float:
            raise UserError(
                f"index: {path} holds vectors as {self.compression.form.name}, which are searched "
                f"without an index; leave it out"
            )


def check_format(path: Path) -> None:
    """Checks that embeddings can be written to a file of this name.

    Raises:
        UserError: another ending, or a missing package.
    """
    if path.suffix not in (".npz", PARQUET):
        raise UserError(f"output: {path} must be a file that ends in .npz or {PARQUET}")
    if path.suffix == PARQUET and find_spec("pyarrow") is None:
        raise UserError(f"output: {path} needs pyarrow: pip install pyarrow")


def write_embeddings(
    path: Path, made: ImageEmbeddings, viewer: ViewerColumns | None = None
) -> None:
    """Writes a file, in memory that the number of images does not change.

    Args:
        path: of the file.
        made: its arrays.
        viewer: further columns, of a Parquet file only.
    """
    arrays = {name: array for name, array in made._asdict().items() if array is not None}
    arrays["made_by"] = np.array(json.dumps(mask_options(made.made_by)))
    if made.compression is not None:
        arrays[COMPRESSION] = np.array(made.compression.to_text())
    with replace_file(path) as temporary:
        if path.suffix != PARQUET:
            with open(temporary, "wb") as file:
                np.savez(file, **arrays)
            return
        import pyarrow
        from pyarrow import parquet

        metadata = {"made_by": str(arrays.pop("made_by"))}
        if COMPRESSION in arrays:
            metadata[COMPRESSION] = str(arrays.pop(COMPRESSION))
        if viewer is not None:
            metadata |= METADATA

        def table(start: int) -> Any:
            columns = {}
            for name, array in arrays.items():
                columns[name] = pyarrow.array(np.ravel(array[start : start + ROWS]))
                for size in reversed(array.shape[1:]):
                    columns[name] = pyarrow.FixedSizeListArray.from_arrays(columns[name], size)
            if viewer is not None:
                columns |= viewer.columns(start, start + ROWS)
            return pyarrow.table(columns, metadata=metadata)

        first = table(0)
        with parquet.ParquetWriter(temporary, first.schema) as writer:
            writer.write_table(first)
            for start in range(ROWS, len(made.paths), ROWS):
                writer.write_table(table(start))


def open_embeddings(
    path: str | Path, option: str = "embeddings", decoded: bool = True
) -> ImageEmbeddings:
    """Opens a file of `dml.embed`, of `dml evaluate save=`, or of other software with `embeddings`.

    Args:
        path: of the file.
        option: that names it, for messages.
        decoded: whether codes of a compressed file are decoded, which takes memory for all of them;
            False: `embeddings` may be codes.

    Raises:
        UserError: the file cannot be read, or its arrays do not fit together.
    """
    with _described_errors(path, option):
        arrays = (_read_parquet if Path(path).suffix == PARQUET else _read_npz)(Path(path))
        stored = _check_arrays(arrays)
        if decoded and stored.has_codes:
            stored = stored._replace(embeddings=stored.decode(slice(None)))
    return stored


@contextmanager
def _described_errors(path: str | Path, option: str) -> Iterator[None]:
    """Raises a UserError instead of any error of a file that is read inside the context."""
    try:
        yield
    except Exception as error:  # of many classes, for bytes of any kind
        kind = "" if Path(path).suffix == PARQUET else describe_no_arrays(Path(path))
        reason = kind or first_line(error)
        raise UserError(f"{option}: {path} cannot be read ({reason})") from error


class TextColumn:
    """Texts of the rows of a file, of which only those that are asked for are read.

    Args:
        values: N texts or whole numbers: an array, mapped if it is large, or a column of pyarrow.
        name: of the array, for messages.
    """

    def __init__(self, values: Any, name: str) -> None:
        self.values, self.name = values, name

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Returns the texts of rows, an array of numbers, as objects.

        Raises:
            UserError: they are damaged.
        """
        try:
            if isinstance(self.values, np.ndarray):
                return self.values[rows].astype(str).astype(object)
            part = self.values.take(np.asarray(rows)).to_numpy(zero_copy_only=False)
            return part.astype(str).astype(object)
        except ValueError as error:
            raise UserError(f"{self.name}: rows of the file are damaged") from error

    def read_all(self) -> np.ndarray:
        """Returns all texts; see `__getitem__`."""
        if isinstance(self.values, np.ndarray):
            return self.values.astype(str, copy=False)
        return self[np.arange(len(self))].astype(str)


class SearchedFile(NamedTuple):
    """A file for a search.

    Attributes:
        stored: its embeddings, which may be codes, and what made them; its paths and labels are
            empty.
        paths: N; row numbers for images without files.
        labels: N names of classes; None if they are not known.
    """

    stored: ImageEmbeddings
    paths: TextColumn
    labels: TextColumn | None


def open_for_search(path: str | Path) -> SearchedFile:
    """Opens a file as `open_embeddings`, but reads the names of few rows only.

    Raises:
        UserError: see `open_embeddings`.
    """
    with _described_errors(path, "embeddings"):
        read = _read_searched_parquet if Path(path).suffix == PARQUET else _read_searched_npz
        arrays, columns = read(Path(path))
        paths, labels = columns.pop("paths", None), columns.pop("labels", None)
        embeddings, compression = _check_vectors(arrays)
        count = len(embeddings)
        if paths is None:
            paths = np.arange(count)
        checked = {"paths": paths, "labels": labels}
        for name, values in checked.items():
            if values is not None and len(values) != count:
                raise ValueError(f"{name} has {len(values)} rows, embeddings have {count}")
    made_by = read_made_by(arrays.get("made_by"))
    no_paths = np.empty(0, str)
    stored = ImageEmbeddings(embeddings, no_paths, None, made_by, compression=compression)
    texts = None if labels is None else TextColumn(labels, "labels")
    return SearchedFile(stored, TextColumn(paths, "paths"), texts)


class EmbeddedFiles(NamedTuple):
    """How the images of a file's rows were when they were embedded; None: not known.

    Attributes:
        roots: N folders, lists or images by which they were listed, without links.
        sizes: N bytes.
        times: N times of their last change in nanoseconds, −1 for one that is not known.
    """

    roots: TextColumn | None = None
    sizes: np.ndarray | None = None
    times: np.ndarray | None = None


def read_embedded_files(path: str | Path) -> EmbeddedFiles:
    """Returns the states of the images of a file, of which roots are read row by row.

    Raises:
        UserError: the file cannot be read.
    """
    with _described_errors(path, "embeddings"):
        if Path(path).suffix == PARQUET:
            columns = read_columns(Path(path), tuple(OF_FILES))
        else:
            columns = {}
            with open_regular(path) as raw, np.lib.npyio.NpzFile(raw, allow_pickle=False) as file:
                for name in OF_FILES:
                    if name in file:
                        columns[name] = _map_or_read(Path(path), file, name)
    if not OF_FILES.keys() <= columns.keys():
        return EmbeddedFiles()
    roots, sizes, times = (columns[name] for name in OF_FILES)
    return EmbeddedFiles(TextColumn(roots, "roots"), sizes, times)


def _map_or_read(path: Path, file: Any, name: str) -> np.ndarray:
    """Returns an array of an `.npz` file: mapped if it is large."""
    try:
        return map_array(path, name)
    except ValueError:
        return _read_small(file, name)  # it says what is wrong


def note_gallery(path: str | Path) -> None:
    """Prints a note if an `.npz` file has a gallery, which a search leaves out."""
    if Path(path).suffix == PARQUET:
        return
    with open_regular(path) as raw, np.lib.npyio.NpzFile(raw, allow_pickle=False) as file:
        if GALLERY in file:
            print_plain(
                f"note: {GALLERY} of {path} is not searched: neighbors come from the array "
                f"embeddings; store the gallery there",
                file=sys.stderr,
            )


def _read_searched_npz(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Returns embeddings, `made_by` and `compression`, and columns of texts."""
    arrays = _read_npz(path, ())
    columns = {}
    with open_regular(path) as raw, np.lib.npyio.NpzFile(raw, allow_pickle=False) as file:
        for name in (*COLUMNS, "splits"):
            if name not in file:
                continue
            values = _map_or_read(path, file, name)
            if name in COLUMNS:
                columns[name] = _check_texts(values, name)
    return arrays, columns


def _read_searched_parquet(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Returns what `_read_searched_npz` returns."""
    import pyarrow
    from pyarrow import parquet

    arrays = read_columns(path, ("embeddings",))
    columns: dict[str, Any] = {}
    with open_regular(path) as opened:
        file = parquet.ParquetFile(opened)
        for name in COLUMNS:
            if name not in file.schema_arrow.names:
                continue
            kind = file.schema_arrow.field(name).type
            column = file.read([name])[name]
            _refuse_nulls(column, name)
            is_text = pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)
            if is_text or pyarrow.types.is_integer(kind):
                columns[name] = column
            else:
                columns[name] = _check_texts(read_columns(path, (name,))[name], name)
    return arrays, columns


def _check_texts(values: np.ndarray, name: str) -> np.ndarray:
    """Returns a column of paths or labels, as `_check_arrays` does but not yet as texts.

    Raises:
        ValueError: they are no texts or whole numbers, or several for a row.
    """
    if name == "labels":
        checked = check_class_labels(values, name)
        if checked.dtype.kind == "f":
            checked = checked.astype(str)
    else:
        checked = values if values.dtype.kind in "iuU" else _as_texts(values, name)
    return _column(checked, name)


def _check_arrays(arrays: dict[str, np.ndarray]) -> ImageEmbeddings:
    """Returns the arrays of a file in the types that ours have.

    Raises:
        ValueError: they do not fit together, or have other types.
    """
    embeddings, compression = _check_vectors(arrays)
    paths = np.arange(len(embeddings)).astype(str)
    if "paths" in arrays:
        paths = _column(_as_texts(arrays["paths"], "paths"), "paths")
    labels, splits = None, None
    if "labels" in arrays:
        labels = _column(check_class_labels(arrays["labels"], "labels").astype(str), "labels")
    if "splits" in arrays:
        splits = _column(_as_texts(arrays["splits"], "splits"), "splits")
    views = arrays.get("views")
    columns = {"paths": paths, "labels": labels, "splits": splits, "views": views}
    for name, rows in columns.items():
        if rows is not None and len(rows) != len(embeddings):
            raise ValueError(f"{name} has {len(rows)} rows, embeddings have {len(embeddings)}")
    if views is not None:
        _check_views(views, embeddings)
    made_by = read_made_by(arrays.get("made_by"))
    of_files = _check_files(arrays, len(embeddings))
    return ImageEmbeddings(
        embeddings, paths, labels, made_by, views, splits, **of_files, compression=compression
    )


def _check_vectors(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, Compression | None]:
    """Returns embeddings in a type that ours have, or codes, and how the file stores them.

    Raises:
        ValueError: they are none.
    """
    compression = read_compression(arrays.get(COMPRESSION), arrays["embeddings"])
    embeddings = arrays["embeddings"]
    if compression is None or compression.form.is_float:
        embeddings = _check_embeddings(embeddings)
    return embeddings, compression


def _check_files(arrays: dict[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    """Returns what a file tells of the images' files; nothing if other software wrote such names.

    They say only which images are embedded again.
    """
    checked = {}
    for name, kind in OF_FILES.items():
        values = arrays.get(name)
        if values is not None and kind == "U" and values.dtype.kind == "O":
            values = values.astype(str)  # of Parquet
        if values is None or values.shape != (count,) or values.dtype.kind != kind:
            return {}
        checked[name] = values
    return checked


def find_compression(path: Path) -> Compression | None:
    """Returns how a file that can be read stores its embeddings; None: as they are.

    Raises:
        ValueError: what says so is damaged.
    """
    if path.suffix == PARQUET:
        return read_compression(read_columns(path, ()).get(COMPRESSION))
    with open_regular(path) as raw, np.lib.npyio.NpzFile(raw, allow_pickle=False) as file:
        if COMPRESSION not in file:
            return None
        return read_compression(file[COMPRESSION])


def read_compression(stored: Any, *codes: np.ndarray) -> Compression | None:
    """Returns the compression of a file, by which its codes can be decoded; None: it has none.

    Args:
        stored: its text, or an array of it; None: the file has none.
        codes: arrays of the file.

    Raises:
        ValueError: it is damaged, or of other codes.
    """
    if stored is None:
        return None
    compression = Compression.from_text(str(np.asarray(stored)))
    for array in codes:
        compression.check_codes(array)
        if not len(array):
            raise ValueError(f"embeddings are empty: {array.shape}")
    return compression


def _check_embeddings(embeddings: np.ndarray) -> np.ndarray:
    """Returns embeddings in a type that PyTorch has.

    Raises:
        ValueError: they are no matrix of floating-point numbers, or empty.
    """
    if embeddings.ndim != 2 or embeddings.dtype.kind != "f":
        is_convertible = embeddings.ndim == 2 and embeddings.dtype.kind in "iu"
        advice = "; embeddings.astype('float32') converts" if is_convertible else ""
        raise ValueError(
            f"embeddings must be a matrix of floating-point numbers, a row per image, got "
            f"{embeddings.dtype} of shape {embeddings.shape}{advice}"
        )
    if 0 in embeddings.shape:
        raise ValueError(f"embeddings are empty: {embeddings.shape}")
    return embeddings.astype(np.float64) if embeddings.itemsize > 8 else embeddings


def _check_views(views: np.ndarray, embeddings: np.ndarray) -> None:
    """Raises ValueError unless there are embeddings of several views for each row."""
    if views.ndim != 3 or views.shape[::2] != embeddings.shape:
        raise ValueError("views must be several embeddings for each row")
    if views.dtype.kind != "f":
        raise ValueError(f"views must be floating-point numbers, got {views.dtype}")


def _as_texts(array: np.ndarray, name: str) -> np.ndarray:
    """Returns texts, of texts, UTF-8 bytes or whole numbers.

    Raises:
        ValueError: other types.
    """
    if array.dtype.kind == "S":
        values = [os.fsdecode(value) for value in array.ravel().tolist()]
        return np.array(values, dtype=str).reshape(array.shape)
    if array.dtype.kind not in "iuUO":
        raise ValueError(f"{name}: {array.dtype} are no texts; {ADVICE['labels']}")
    return array.astype(str)


def _column(array: np.ndarray, name: str) -> np.ndarray:
    """Returns a value per row, also of a matrix with one column.

    Raises:
        ValueError: several values per row.
    """
    if array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} must hold one value for each row, got shape {array.shape}")
    return array


def read_made_by(stored: Any) -> dict[str, Any]:
    """Returns what a file says of its network; empty if other software wrote it in another form."""
    if stored is None:
        return {}
    try:
        value = np.asarray(stored).item()
        text = value.decode() if isinstance(value, bytes) else str(value)
        made_by = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return made_by if isinstance(made_by, dict) else {}


def _read_npz(
    path: Path, names: Sequence[str] = SMALL, mapped: Sequence[str] = ("embeddings", "views")
) -> dict[str, np.ndarray]:
    check_sizes(path, ImageEmbeddings._fields)
    with open_regular(path) as raw, np.lib.npyio.NpzFile(raw, allow_pickle=False) as file:
        _require_embeddings(file)
        small = {}
        for name in names:
            if name in file:
                with suppress(*((ValueError,) if name in OF_FILES else ())):
                    small[name] = _read_small(file, name)
        with suppress(Exception):  # of many classes: a damaged one is as good as none
            small["made_by"] = file["made_by"]
        if COMPRESSION in file:
            small[COMPRESSION] = file[COMPRESSION]
        large = {n: map_array(path, n) for n in mapped if n in file}
    return small | large


def _require_embeddings(names: Collection[str]) -> None:
    """Raises ValueError unless a file has the array; the message names those that it has."""
    if "embeddings" not in names:
        others = ", ".join(sorted(names)[:SHOWN]) or "nothing"
        raise ValueError(f"it has no array embeddings, but {others}")


def _read_small(file: np.lib.npyio.NpzFile, name: str) -> np.ndarray:
    try:
        return file[name]
    except ValueError as error:
        if "pickle" not in str(error):
            raise
        advice = ADVICE["labels"].replace("labels", name)
        raise ValueError(f"{name} holds Python objects; {advice}") from error


def _read_parquet(path: Path) -> dict[str, np.ndarray]:
    return read_columns(path, ImageEmbeddings._fields)


def read_columns(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Returns columns of a Parquet file, `made_by` and `compression`; others are not read.

    Args:
        path: of the file.
        names: of columns; those that the file lacks are left out.

    Raises:
        ValueError: it has no embeddings, or a column has missing values or rows of several lengths.
        OSError, pyarrow.ArrowException: the file cannot be read.
    """
    from pyarrow import parquet

    with open_regular(path) as opened:
        file = parquet.ParquetFile(opened)
        schema = file.schema_arrow
        _require_embeddings(schema.names)
        table = file.read([name for name in names if name in schema.names])
    arrays = {}
    for name in table.column_names:
        column, shape = table[name].combine_chunks(), [len(table)]
        _refuse_nulls(column, name)
        while hasattr(column.type, "value_type") and column.type.num_fields == 1:
            shape.append(_length_of_lists(column, name))
            column = column.flatten()
            _refuse_nulls(column, name)
        arrays[name] = np.reshape(column.to_numpy(zero_copy_only=False), shape)
    metadata = schema.metadata or {}
    arrays["made_by"] = np.array(metadata.get(b"made_by", b"{}"))
    if COMPRESSION.encode() in metadata:
        arrays[COMPRESSION] = np.array(metadata[COMPRESSION.encode()].decode())
    return arrays


def _length_of_lists(column: Any, name: str) -> int:
    """Returns the number of values in each list of a column, as pandas and datasets write them.

    Raises:
        ValueError: the lists have several lengths.
    """
    if hasattr(column.type, "list_size"):
        return int(column.type.list_size)
    lengths = column.value_lengths().unique().to_pylist()
    if len(lengths) > 1:
        raise ValueError(f"{name} has rows of several lengths: {min(lengths)} to {max(lengths)}")
    return int(lengths[0]) if lengths else 0


def _refuse_nulls(column: Any, name: str) -> None:
    """Raises ValueError for missing values, which would become NaN or the text `None`."""
    if name in ImageEmbeddings._fields and column.null_count:
        raise ValueError(
            f"{name}: {column.null_count} of {len(column)} are missing; leave out these rows, or "
            f"fill them in"
        )
