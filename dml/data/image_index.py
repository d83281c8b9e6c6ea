"""Indexes of images with labels and roles, and their subsets, without decoded images."""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.core.counts import count_of, verb_for
from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.data.image_names import as_names, texts_of
from dml.data.packed_images import split_packed

TESTED = ("test", "query", "gallery")
HELD_OUT = ("validation", *TESTED)  # roles of images that nothing is trained on
ROLES = ("train", *TESTED, "unused")
BOX = re.compile(r"(.+)#(\d+),(\d+),(\d+),(\d+)")
SAMPLE = 100  # images of a lazy sequence whose pixels are part of the fingerprint
MISSING = ("None", "nan", "<NA>")  # texts of values of Python and pandas that are none
PART = 10_000  # values of a fingerprint in memory at once
SIZES = 1000  # files whose size is read; all of SOP takes minutes on a network file system


class StoredFeatures(NamedTuple):
    """Features of N images, in memory or memory-mapped.

    Attributes:
        plain: N×F, of the images as they are evaluated.
        views: N×V×F, of V augmented views of each image; None: there are none.
    """

    plain: np.ndarray
    views: np.ndarray | None

    def sample(self) -> np.ndarray:
        """Returns up to a thousand rows, evenly spaced, of plain features and views, k×F."""
        rows = _spread(len(self.plain), 1000)
        parts = [self.plain[rows]]
        if self.views is not None:
            parts += list(self.views[rows].swapaxes(0, 1))
        return np.concatenate(parts)


@dataclass(frozen=True)
class ImageIndex:
    """The images of a dataset, not decoded, with their labels and roles.

    Attributes:
        name: id of the dataset.
        images: N paths (`split_box`: parts of images; `dml.data.packed_images`: in other files), a
            list of which becomes `dml.data.image_names.ImageNames`; a uint8 array N×H×W×3 (RGB) for
            data that fits in memory; or any object with a length whose items are images of Pillow
            or uint8 arrays H×W×3, made at every access.
        labels: N integers 0..C−1, re-indexed in class order over the whole dataset.
        roles: N strings: `train`, `test`, `query`, `gallery`, or `unused`; with `shared_classes`
            also `validation`.
        recall_at: the K of Recall@K that the literature reports on this dataset.
        stand_in: True for small data that stands in for a benchmark; reports mark its results.
        own_split: True if the user defined the split; protocols then keep it.
        root: folder of the dataset; it may differ between machines.
        fingerprint_name: replaces `name` in the fingerprint, if not empty.
        apply_orientation: rotate images upright by their EXIF orientation.
        background: a color on which transparent images are composed (`dml.data.decode.load_image`).
        max_pixels: largest height × width of a file (`dml.data.decode.load_image`).
        skipped: number of corrupt images that were excluded.
        transparent: number of images with transparent pixels; None: they were not checked.
        content: hash of the bytes of all images, if they are the user's own; else empty.
        notes: what a user should know of the images, a line each.
        class_names: names of the C classes in the order of their labels, where users name them.
        categories: names of the N images' categories, such as the super-class of a product, empty
            for an image without one; None: the dataset has no categories.
        shared_classes: True if a class may be in both training and test (`dml.data.closed_set`).
        features: to train and test on instead of the images; None: the images.

    Raises:
        ValueError: the lengths differ, labels are no integers from 0, a role is unknown, or a class
            is in both training and test without `shared_classes`.
    """

    name: str
    images: Sequence[Any] | np.ndarray
    labels: np.ndarray
    roles: np.ndarray
    recall_at: tuple[int, ...] = (1, 2, 4, 8)
    stand_in: bool = False
    own_split: bool = False
    root: Path | None = None
    fingerprint_name: str = ""
    apply_orientation: bool = False
    background: str = "white"
    max_pixels: int = MAX_IMAGE_PIXELS
    skipped: int = 0
    transparent: int | None = None
    content: str = ""
    notes: tuple[str, ...] = ()
    features: StoredFeatures | None = None
    class_names: tuple[str, ...] = ()
    categories: Sequence[str] | np.ndarray | None = None
    shared_classes: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "images", _as_names(self.images))
        object.__setattr__(self, "labels", _check_labels(self.labels))
        object.__setattr__(self, "roles", np.asarray(self.roles))
        categories = _check_categories(self.categories, len(self.labels))
        object.__setattr__(self, "categories", categories)
        if not len(self.images) == len(self.labels) == len(self.roles):
            raise ValueError(
                f"images, labels and roles differ in length: "
                f"{len(self.images)}, {len(self.labels)}, {len(self.roles)}"
            )
        valid = (*ROLES, "validation") if self.shared_classes else ROLES
        unknown = sorted(set(np.unique(self.roles).tolist()) - set(valid))
        if unknown:
            raise ValueError(
                f"roles: unknown {', '.join(map(repr, unknown))}; valid are {', '.join(valid)}"
            )
        if self.shared_classes:
            return
        training = self.labels[self.roles == "train"]
        tested = self.labels[np.isin(self.roles, TESTED)]
        both = np.intersect1d(training, tested)
        if len(both):
            raise ValueError(
                f"labels: {count_of(len(both), 'class')} with both training and test images; "
                f"retrieval is tested on classes that are not trained on"
            )

    @property
    def files(self) -> Sequence[Path] | None:
        """The images if they are paths."""
        is_path = len(self.images) > 0 and isinstance(self.images[0], Path)
        return self.images if is_path else None  # type: ignore[return-value]

    @property
    def relative_files(self) -> list[str] | None:
        """The paths of the images as seen from `root`; None: they are no paths.

        Those elsewhere are absolute, unless they were listed relatively (`../photos/1.jpg`).

        Without a root they count from the deepest folder that contains them all.
        """
        names = self._relative_names()
        return None if names is None else list(names)

    def _relative_names(self) -> Iterator[str] | None:
        """Yields `relative_files`, which need not be in memory at once."""
        files = self.files
        if files is None:
            return None
        root = self.root or _common_folder(files)
        top, typed = os.path.join(os.path.abspath(root), ""), os.path.join(root, "")
        return (_name_below(file, top, typed) for file in texts_of(files))

    def names_of(self, *roles: str) -> list[str]:
        """Returns the names of the classes that have images with these roles, if there are any."""
        if not self.class_names:
            return []
        labels = np.unique(self.labels[np.isin(self.roles, roles)])
        return [self.class_names[label] for label in labels]

    def subset(self, *roles: str) -> Subset:
        """Returns the images with the given roles, in the order of the index."""
        return Subset(self, np.flatnonzero(np.isin(self.roles, roles)))

    def fingerprint(self) -> str:
        """Returns 16 hex digits that depend on images, labels and roles, but not on the machine.

        Files count by their order, their paths relative to `root` (default: the deepest folder that
        contains them all), so that the dataset may be moved, and the sizes of up to `SIZES` of
        them, evenly spaced: a cropped or re-encoded copy has another fingerprint. Images in memory
        count by their pixels, lazy ones by the pixels of up to `SAMPLE` images.
        """
        images = self.images
        if self.features is not None:
            images = self.features.sample()
        content: list[object] = [self.fingerprint_name or self.name, self.roles, self.labels]
        if isinstance(images, np.ndarray):
            content += [images.shape, _hash_pixels(images)]
        elif self.files is None:
            content.append(len(images))
            for row in _spread(len(images), SAMPLE):
                content.append(_hash_pixels(np.asarray(images[row])))
        else:
            content.append(self._relative_names())
            sample = _spread(len(images), SIZES)
            content.append([file_of(images[row]).stat().st_size for row in sample])
        return _hash_json(content)


def _as_names(images: Sequence[Any] | np.ndarray) -> Sequence[Any] | np.ndarray:
    """Returns a list of paths in less memory, and other images as they are."""
    is_list = isinstance(images, list | tuple) and len(images) > 0
    if not is_list or not all(isinstance(image, Path) for image in images):
        return images
    return as_names(images)


def _common_folder(files: Sequence[Path]) -> str:
    """Returns the deepest folder that contains all files; the current one of mixed paths."""
    parents = {str(file.parent) for file in files}
    is_mixed = len({os.path.isabs(parent) for parent in parents}) > 1
    return os.curdir if is_mixed else os.path.commonpath(parents)


def _name_below(path: str, top: str, typed: str) -> str:
    """Returns a path as seen from a folder; an absolute one for a path that does not begin with it.

    Args:
        path: of a file.
        top: the folder, absolute.
        typed: the folder as it begins relative paths.
    """
    absolute = _absolute(path)
    if absolute.startswith(top):
        return absolute.removeprefix(top)
    if path.startswith(typed):
        return os.path.relpath(absolute, top)
    return absolute


def _absolute(path: str) -> str:
    """Returns `os.path.abspath` of the text of a path, which has no empty parts and no dots."""
    is_plain = path.startswith("/") and not path.startswith("//") and ".." not in path
    return path if is_plain else os.path.abspath(path)


def _check_labels(labels: Any) -> np.ndarray:
    """Returns labels as an array.

    Raises:
        ValueError: they are not N integers from 0.
    """
    array = np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(
            f"labels must be N integers from 0, got {array.dtype} of shape {array.shape}; "
            f"numpy.unique(labels, return_inverse=True)[1] numbers names"
        )
    if len(array) and array.min() < 0:
        raise ValueError(
            f"labels must not be negative, got {array.min()}; images without a class have the role "
            f"'unused'"
        )
    return array


def _check_categories(categories: Any, count: int) -> np.ndarray | None:
    """Returns the categories of the images as texts; None if no image has one.

    Letters with accents are composed, so that equal names are one category.

    Args:
        categories: texts or numbers; None, NaN or an empty text: the image has none.
        count: number of images.

    Raises:
        ValueError: there is not one per image.
    """
    if categories is None:
        return None
    if len(categories) != count:
        raise ValueError(
            f"categories: {len(categories)} for {count} images; give one per image, or None"
        )
    names = np.empty(count, dtype=object)  # one long name does not widen all
    for row, category in enumerate(categories):
        text = str(category)
        is_missing = text in MISSING and not isinstance(category, str)
        names[row] = "" if is_missing else unicodedata.normalize("NFC", text).strip()
    return names if names.any() else None


def describe_images(index: ImageIndex, scored: bool = True) -> list[str]:
    """Returns notes on the images of a dataset, a line each.

    Args:
        index: the dataset.
        scored: False: the images are embedded, and their classes do not matter.
    """
    notes = list(index.notes)
    tested = index.labels[np.isin(index.roles, TESTED)]
    if scored and len(tested) and len(np.unique(tested)) == 1:
        notes.append("data: all test images are of one class, so that every score is 100")
    if index.transparent:
        have = verb_for(index.transparent, "has", "have")
        notes.append(
            f"data: {index.transparent} of {len(index.images)} images {have} transparent pixels, "
            f"which are {index.background} (data.background)"
        )
    return notes


def split_box(image: str | Path) -> tuple[Path, tuple[int, ...] | None]:
    """Returns the file of an image, and its box if the name has one.

    `photo.jpg#10,20,90,80` is the part of `photo.jpg` from (10, 20) to (90, 80), in pixels of the
    upright image.
    """
    match = BOX.fullmatch(os.fspath(image))
    if match is None:
        return Path(image), None
    file, *corners = match.groups()
    return Path(file), tuple(map(int, corners))


def file_of(image: str | Path) -> Path:
    """Returns the file on the disk that an image is in, whole, as a box, or packed with others."""
    packed = split_packed(image)
    return split_box(image)[0] if packed is None else packed.file


def join_box(file: Path, corners: Sequence[float]) -> Path:
    """Returns the name of a part of an image (`split_box`).

    Args:
        file: the image.
        corners: left, top, right and bottom; what is outside of the image is cut off.
    """
    numbers = [str(max(0, round(corner))) for corner in corners]
    return Path(f"{file}#{','.join(numbers)}")


def hash_listing(files: Sequence[Path], *settings: object) -> str:
    """Returns a hash of `settings` and of the paths, sizes and modification times of files."""
    states = zip(texts_of(files), read_states(files), strict=True)
    listing = ((os.path.abspath(file), *state) for file, state in states)
    return _hash_json([*settings, listing])


def read_states(files: Sequence[Path]) -> Iterator[tuple[int, int]]:
    """Yields the size and the modification time (ns) of the file of each image.

    Those of a file that holds several images are read once.

    Raises:
        OSError: a file is missing.
    """
    known: tuple[int, int] = 0, 0
    start = ""  # of the names of images in the file before
    for name in texts_of(files):
        if not start or not name.startswith(start):
            packed = split_packed(name)
            status = os.stat(name if "#" not in name else file_of(name))
            known = status.st_size, status.st_mtime_ns
            start = "" if packed is None else f"{packed.file}#"
        yield known


def hash_text(text: str) -> str:
    """Returns 16 hex digits of the hash of a text, which may be the name of any file."""
    return hash_words([text])


def hash_words(words: Iterable[str]) -> str:
    """Returns `hash_text` of words with a space between two, which need not be in memory."""
    digest = hashlib.sha256()
    rest, between = iter(words), ""
    while part := list(islice(rest, PART)):
        digest.update(f"{between}{' '.join(part)}".encode(errors="surrogateescape"))
        between = " "
    return digest.hexdigest()[:16]


def _hash_json(content: list[object]) -> str:
    """Returns 16 hex digits of the hash of a list in JSON, of which little is in memory at once.

    Its items may be arrays and iterators, which count as lists.
    """
    digest = hashlib.sha256(b"[")
    for number, item in enumerate(content):
        digest.update(b", " if number else b"")
        for text in _as_json(item):
            digest.update(text.encode(errors="surrogateescape"))
    digest.update(b"]")
    return digest.hexdigest()[:16]


def _as_json(item: object) -> Iterator[str]:
    """Yields the parts of what `json.dumps` returns of an item, arrays and iterators as lists."""
    if not isinstance(item, np.ndarray | Iterator):
        yield json.dumps(item)
        return
    values = iter(item)
    between = "["
    while part := list(islice(values, PART)):
        if isinstance(item, np.ndarray):
            part = np.asarray(part).tolist()
        yield between + json.dumps(part)[1:-1]
        between = ", "
    yield "]" if between == ", " else "[]"


def _hash_pixels(pixels: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(pixels).data).hexdigest()


def _spread(count: int, limit: int) -> list[int]:
    """Returns up to `limit` of the numbers 0..count−1, evenly spaced."""
    return np.linspace(0, count - 1, min(limit, count)).astype(int).tolist()


@dataclass(frozen=True)
class Subset:
    """Rows of an index with contiguous labels: the images that a model is trained or tested on.

    Attributes:
        index: the dataset.
        rows: n row numbers of the index.
        labels: n integers 0..num_classes−1, in the class order of the index.
        classes: the index's label for each label 0..num_classes−1.
    """

    index: ImageIndex
    rows: np.ndarray
    labels: np.ndarray = field(init=False)
    classes: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        classes, labels = np.unique(self.index.labels[self.rows], return_inverse=True)
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "labels", labels.astype(np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def categories(self) -> np.ndarray | None:
        """Names of the n images' categories, empty for none; None: the dataset has none."""
        every = self.index.categories
        return None if every is None else np.asarray(every)[self.rows]

    @property
    def num_classes(self) -> int:
        """Number of classes in the subset."""
        return len(self.classes)

    def of_classes(self, labels: Sequence[int] | np.ndarray) -> Subset:
        """Returns the images with the given (contiguous) labels."""
        return Subset(self.index, self.rows[np.isin(self.labels, np.asarray(labels))])
