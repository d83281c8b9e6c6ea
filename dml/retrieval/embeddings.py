"""Embeddings of queries and gallery: scored, stored, and those of several models joined.

Arrays of the `.npz` file, written by a run or by other software: `embeddings` N×D and `labels` N;
for a query–gallery split also `gallery_embeddings` and `gallery_labels`, and `self_index` N, the
row of each query in the gallery, or −1; `paths` and `gallery_paths` where the images are files. A
Parquet file has columns `embeddings`, `labels` and `paths`. Both may hold codes of
`dml embed --compress`, which are decoded.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dml.core.atomic_io import replace_file
from dml.core.class_labels import ADVICE, check_class_labels, number_classes
from dml.core.errors import UserError, first_line
from dml.core.file_formats import describe_no_arrays
from dml.core.metric_names import OF_CATEGORIES
from dml.core.npz_files import check_sizes
from dml.core.plain_text import print_plain
from dml.core.regular_files import open_regular
from dml.retrieval.embedding_file import (
    COMPRESSION,
    OF_FILES,
    PARQUET,
    read_columns,
    read_compression,
)
from dml.retrieval.metrics import concatenate, mean_average_precision, retrieval_metrics

ARRAYS = ("embeddings", "labels", "gallery_embeddings", "gallery_labels", "self_index")
# Of images, network and file, which no score depends on.
NAMES = ("paths", "gallery_paths", "splits", "made_by", "origin", COMPRESSION, *OF_FILES)

log = logging.getLogger(__name__)


class SplitEmbeddings(NamedTuple):
    """A split's embeddings N×D (at least float32) and dataset-wide labels N, on one device.

    `self_index` (N) holds the row of each query in the gallery, −1 for none; None: no query is in
    the gallery, or there is none.
    """

    query: Tensor
    query_labels: Tensor
    gallery: Tensor | None = None
    gallery_labels: Tensor | None = None
    self_index: Tensor | None = None

    def to(self, device: torch.device | str) -> SplitEmbeddings:
        """Returns the same embeddings on a device."""
        return SplitEmbeddings(*(None if part is None else part.to(device) for part in self))  # type: ignore[arg-type]

    def as_one_set(self) -> tuple[Tensor, Tensor]:
        """Returns the embeddings and labels of queries and gallery, each image once."""
        if self.gallery is None or self.gallery_labels is None:
            return self.query, self.query_labels
        query, labels = self.query, self.query_labels
        if self.self_index is not None:
            is_absent = self.self_index < 0
            query, labels = query[is_absent], labels[is_absent]
        return torch.cat([query, self.gallery]), torch.cat([labels, self.gallery_labels])

    @property
    def collapsed(self) -> bool:
        """True if all embeddings are equal, so that scores depend on the order of ties."""
        points, _ = self.as_one_set()
        return len(points) > 1 and bool((points == points[0]).all())

    @property
    def lengths(self) -> tuple[float, float]:
        """The shortest and the longest Euclidean length of an embedding."""
        parts = [part for part in (self.query, self.gallery) if part is not None]
        shortest = [torch.linalg.vector_norm(part, dim=1).min() for part in parts]
        longest = [torch.linalg.vector_norm(part, dim=1).max() for part in parts]
        return torch.stack(shortest).min().item(), torch.stack(longest).max().item()

    def score(self, recall_at: Sequence[int], backend: str = "auto") -> dict[str, float]:
        """Returns the metrics of `dml.retrieval.retrieval_metrics`, whose arguments these are.

        Raises:
            UserError: embeddings or labels that it refuses, such as embeddings that are not finite.
        """
        try:
            return retrieval_metrics(
                *self[:4], self_index=self.self_index, recall_at=recall_at, backend=backend
            )
        except ValueError as error:
            raise UserError(f"evaluation: {error}") from error

    def score_categories(
        self, categories: np.ndarray, backend: str = "auto"
    ) -> dict[str, dict[str, float]]:
        """Returns Recall@1 and MAP@R of the queries of each category, against the whole gallery.

        Args:
            categories: of the B queries.
            backend: see `dml.retrieval.retrieval_metrics`.

        Returns:
            Category → `recall_at_1` and `map_at_r` (0–1; absent if no query has a match), `queries`
            and `queries_without_match`, in the order of the names.

        Raises:
            UserError: as `score`.
        """
        gallery, labels, self_index = self.gallery, self.gallery_labels, self.self_index
        if gallery is None or labels is None:
            gallery, labels = self.query, self.query_labels
            self_index = torch.arange(len(labels), device=labels.device)
        if self_index is None:
            self_index = torch.full_like(self.query_labels, -1)
        relevant = torch.bincount(labels, minlength=int(self.query_labels.max()) + 1)
        has_match = relevant[self.query_labels] > (self_index >= 0).long()
        scores: dict[str, dict[str, float]] = {}
        for category in sorted(set(categories)):
            is_part = torch.from_numpy(categories == category).to(has_match.device)
            rows = (is_part & has_match).nonzero().flatten()
            scores[category] = {"queries": len(rows)}
            if len(rows):
                queries = self.query[rows], self.query_labels[rows]
                part = SplitEmbeddings(*queries, gallery, labels, self_index[rows])
                metrics = part.score([1], backend)
                scores[category] |= {name: metrics[name] for name in OF_CATEGORIES}
            scores[category]["queries_without_match"] = int(is_part.sum()) - len(rows)
        return scores

    def mean_average_precision(self) -> float:
        """Returns mAP by `dml.retrieval.mean_average_precision`.

        Raises:
            UserError: as `score`.
        """
        try:
            return mean_average_precision(*self[:4], self_index=self.self_index)
        except ValueError as error:
            raise UserError(f"evaluation: {error}") from error

    @property
    def queries_are_in_gallery(self) -> bool:
        """True if each query equals a row of the gallery, and no `self_index` says which."""
        if self.gallery is None or self.self_index is not None:
            return False
        stored = {_row_key(row) for row in self.gallery.cpu().numpy()}
        return all(_row_key(row) in stored for row in self.query.cpu().numpy())


def concatenate_models(
    files: Sequence[Path], normalize: Callable[[Tensor], Tensor], device: torch.device
) -> SplitEmbeddings:
    """Returns the normalized embeddings of several models, concatenated and normalized again.

    Args:
        files: the models' embeddings of the same images (`save_embeddings`).
        normalize: see `dml.retrieval.concatenate`.
        device: of the result.

    Raises:
        UserError: a file is missing or damaged.
    """
    models = [load_embeddings(file, device) for file in files]
    query = concatenate([model.query for model in models], normalize)
    galleries = [model.gallery for model in models if model.gallery is not None]
    gallery = concatenate(galleries, normalize) if galleries else None
    return models[0]._replace(query=query, gallery=gallery)


def save_embeddings(
    path: Path,
    embeddings: SplitEmbeddings,
    names: Sequence[Sequence[str]],
    dtype: str = "float32",
    origin: str = "",
) -> None:
    """Writes embeddings and labels.

    Args:
        path: the `.npz` file.
        embeddings: of queries and gallery.
        names: of the images, usually their paths: those of the queries, then of the gallery.
        dtype: `float16` (half the size, about three digits) or `float32`.
        origin: of the file, by which a later call knows it (`is_file_of`); empty: none.
    """
    arrays = {}
    for name, part in zip(ARRAYS, embeddings, strict=True):
        if part is not None:
            arrays[name] = part.cpu().numpy()
    for prefix, paths in zip(("", "gallery_"), names, strict=False):
        arrays[f"{prefix}embeddings"] = arrays[f"{prefix}embeddings"].astype(dtype)
        arrays[f"{prefix}paths"] = np.array(paths)
    if origin:
        arrays["origin"] = np.array(origin)
    with replace_file(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def is_file_of(origin: str, path: Path) -> bool:
    """Returns whether a file was written by `save_embeddings` with this origin."""
    return read_origin(path) == origin


def read_origin(path: Path) -> str | None:
    """Returns the origin in a file of `save_embeddings`; None: it names none."""
    with open_regular(path) as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as arrays:
        return str(arrays["origin"]) if "origin" in arrays else None


def _row_key(row: np.ndarray) -> bytes:
    """Returns bytes that are equal for equal rows: of float64, in which −0 is 0."""
    values = row.astype(np.float64) + 0.0
    return hashlib.blake2b(values.tobytes(), digest_size=16).digest()


def load_embeddings(path: str | Path, device: torch.device) -> SplitEmbeddings:
    """Reads embeddings and labels, whose shapes `SplitEmbeddings.score` checks.

    Classes, which may have names, are numbered in their order. A warning names arrays of the file
    that are not used.

    Raises:
        UserError: there is no such file, it is damaged, arrays are missing or not numbers, labels
            cannot be compared, or `self_index` does not name rows of the gallery.
    """
    try:
        arrays = _read_arrays(path)
    except UserError:
        raise
    except Exception as error:  # of many classes, for bytes of any kind
        kind = "" if Path(path).suffix == PARQUET else describe_no_arrays(Path(path))
        reason = kind or first_line(error)
        raise UserError(
            f"embeddings: {path} cannot be read ({reason}); numpy.savez(file, "
            f"embeddings=…, labels=…) writes a matrix of numbers and a class for each row"
        ) from error
    try:
        _convert(arrays)
    except ValueError as error:
        raise UserError(f"embeddings: {path}: {error}") from error
    parts = (arrays.get(name) for name in ARRAYS)
    tensors = (None if part is None else torch.from_numpy(part).to(device) for part in parts)
    return SplitEmbeddings(*tensors)  # type: ignore[arg-type]


class StoredNames(NamedTuple):
    """Names of the images and classes of a file of embeddings.

    Attributes:
        paths: of the queries; row numbers where the file has none.
        gallery_paths: of the gallery; None: the queries are the gallery.
        class_names: of the classes 0..C−1, as `load_embeddings` numbers them.
    """

    paths: list[str]
    gallery_paths: list[str] | None
    class_names: list[str]


def read_names(path: str | Path, embeddings: SplitEmbeddings) -> StoredNames:
    """Returns the names in a file that `load_embeddings` has read.

    Paths of an unknown type, or of another number, count as none, with a note.
    """
    names = ("paths", "gallery_paths", "labels", "gallery_labels")
    if Path(path).suffix == PARQUET:
        arrays = read_columns(Path(path), names)
    else:
        with open_regular(path) as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {}
            for name in names:
                try:
                    if name in file:
                        arrays[name] = file[name]
                except ValueError:  # Python objects, which are not read
                    arrays[name] = np.empty(0, object)
    classes: dict[int, str] = {}
    for name, numbers in (
        ("labels", embeddings.query_labels),
        ("gallery_labels", embeddings.gallery_labels),
    ):
        if name in arrays and numbers is not None:
            texts = check_class_labels(arrays[name], name)
            classes |= dict(zip(numbers.tolist(), map(str, texts.tolist()), strict=True))
    gallery = None
    if embeddings.gallery is not None:
        gallery = _as_paths(arrays, "gallery_paths", len(embeddings.gallery))
    paths = _as_paths(arrays, "paths", len(embeddings.query))
    return StoredNames(paths, gallery, [classes[number] for number in sorted(classes)])


def _as_paths(arrays: Mapping[str, np.ndarray], name: str, count: int) -> list[str]:
    """Returns an array of texts, bytes or numbers as a list; row numbers for none or another."""
    numbers = [str(row) for row in range(count)]
    if name not in arrays:
        return numbers
    array = arrays[name]
    if array.shape != (count,) or array.dtype.kind not in "USOiu":
        print_plain(
            f"note: {name} is no list of {count} texts (it is {array.dtype} of shape "
            f"{array.shape}): images are named by their rows",
            file=sys.stderr,
        )
        return numbers
    return [os.fsdecode(path) if isinstance(path, bytes) else str(path) for path in array.tolist()]


def _convert(arrays: dict[str, np.ndarray]) -> None:
    """Checks arrays, and converts them in place to types that PyTorch has.

    Raises:
        ValueError: the first problem, which names the array.
    """
    _decode(arrays)
    labels = {name: array for name, array in arrays.items() if "labels" in name}
    arrays.update(zip(labels, number_classes(labels), strict=True))
    for name in ("embeddings", "gallery_embeddings"):
        if name in arrays:
            arrays[name] = _as_floats(arrays[name], name)
    if "self_index" in arrays:
        arrays["self_index"] = _check_self_index(arrays)


def _decode(arrays: dict[str, np.ndarray]) -> None:
    """Replaces codes by the vectors that they stand for, and leaves out how they are stored.

    Raises:
        ValueError: the text that says so is damaged, or of other codes.
    """
    names = [name for name in ("embeddings", "gallery_embeddings") if name in arrays]
    compression = read_compression(arrays.pop(COMPRESSION, None), *(arrays[name] for name in names))
    if compression is not None:
        for name in names:
            arrays[name] = compression.decode(arrays[name])


def _read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Returns the ARRAYS of a file and how it stores them, and warns of others."""
    if Path(path).suffix == PARQUET:
        return _read_columns(Path(path))
    check_sizes(Path(path), [*ARRAYS, COMPRESSION])
    with open_regular(path) as opened, np.load(opened, allow_pickle=False) as file:
        _check_names(file.files, path)
        names = [name for name in (*ARRAYS, COMPRESSION) if name in file]
        arrays = {name: _read_array(file, path, name) for name in names}
        unused = sorted(set(file.files) - {*ARRAYS, *NAMES})
    if unused:
        log.warning("%s: arrays that are not used: %s", path, ", ".join(unused))
    return arrays


def _check_names(names: Sequence[str], path: str | Path) -> None:
    """Checks that a file has the arrays that belong together.

    Raises:
        UserError: an array of a gallery without its embeddings.
        ValueError: an array that every file needs is not there.
    """
    has_gallery = "gallery_embeddings" in names
    needed = ARRAYS[:4] if has_gallery else ARRAYS[:2]
    if not has_gallery:
        for name in ("gallery_labels", "self_index"):
            if name in names:
                raise UserError(
                    f"embeddings: {path}: {name} needs gallery_embeddings in the file; add them, "
                    f"or leave {name} out"
                )
    missing = [name for name in needed if name not in names]
    if missing:
        raise ValueError(f"it has no array {', '.join(missing)}")


def _read_columns(path: Path) -> dict[str, np.ndarray]:
    """Returns embeddings and labels of a Parquet file."""
    arrays = read_columns(path, ARRAYS[:2])
    if "labels" not in arrays:
        raise ValueError("it has no column labels")
    return {name: arrays[name] for name in (*ARRAYS[:2], COMPRESSION) if name in arrays}


def _read_array(file: np.lib.npyio.NpzFile, path: str | Path, name: str) -> np.ndarray:
    try:
        return file[name]
    except ValueError as error:
        if "pickle" not in str(error):
            raise
        array = name.removeprefix("gallery_")
        advice = ADVICE.get(array, f"store it as numpy.array({array}, dtype='float32')")
        raise UserError(
            f"embeddings: {path}: {name} holds Python objects, which are not read from files; "
            f"{advice}"
        ) from error


def _as_floats(array: np.ndarray, name: str) -> np.ndarray:
    """Returns numbers as float32, or as float64 if float32 would round them.

    PyTorch has no longer type and no foreign byte order.

    Raises:
        ValueError: the array holds no real numbers.
    """
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be a matrix of numbers, got {array.dtype}")
    exact = np.promote_types(array.dtype, np.float32)
    return array.astype(np.float64 if exact.itemsize > 4 else np.float32)


def _check_self_index(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the rows of queries in the gallery as int64.

    Raises:
        ValueError: not an integer for each query, or a row that does not exist.
    """
    rows, count = arrays["self_index"], len(arrays["gallery_embeddings"])
    queries = len(arrays["embeddings"])
    if rows.dtype.kind not in "iu" or rows.shape != (queries,):
        raise ValueError(
            f"self_index must hold {queries} integers, the row of each query in the gallery or "
            f"-1, got {rows.dtype} of shape {rows.shape}"
        )
    # before the conversion, in which a large unsigned number would become negative
    outside = (rows < -1) | (rows >= count)
    if outside.any():
        raise ValueError(f"self_index must lie between -1 and {count - 1}, got {rows[outside][0]}")
    return rows.astype(np.int64)
