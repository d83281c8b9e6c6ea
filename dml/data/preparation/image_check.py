"""Check of a user's images: which cannot be decoded, are transparent, have changed or are equal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from torch import Tensor

from dml.core.atomic_io import read_json, write_text
from dml.core.counts import count_of, verb_for
from dml.core.errors import UserError
from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.core.plain_text import show_line
from dml.core.progress import show_progress
from dml.core.regular_files import open_regular
from dml.core.signals import raise_on_signals
from dml.data.decode import DECODER, decode_image, is_opaque_format, map_in_threads, open_image
from dml.data.image_index import HELD_OUT, ImageIndex, Subset, file_of, hash_text, split_box
from dml.data.packed_images import read_packed, split_packed

SHOWN = 3  # images in a note


class Checked(NamedTuple):
    """What is known of an image after it was decoded.

    Attributes:
        size, modified: bytes and time (ns) of its file, which decide whether it is read again.
        content: hash of the bytes of its file; empty if the file cannot be read.
        pixels: hash of the decoded pixels; empty if it cannot be decoded.
        transparent: whether a pixel is not opaque.
        problem: why it cannot be decoded; None: it can be.
    """

    size: int
    modified: int
    content: str
    pixels: str
    transparent: bool
    problem: str | None


def check_image(image: Path, max_pixels: int = MAX_IMAGE_PIXELS) -> Checked:
    """Decodes an image, or a box of one, and returns what is known of it then."""
    size, modified, content = 0, 0, ""
    with suppress(OSError):
        status = file_of(image).stat()
        size, modified = status.st_size, status.st_mtime_ns
        content = _hash_bytes(image)
    try:
        decoded = decode_image(image, max_pixels=max_pixels)
    except UserError as error:
        return Checked(size, modified, content, "", False, str(error))
    pixels = _hash_pixels(decoded.pixels)
    return Checked(size, modified, content, pixels, decoded.transparent, None)


def _hash_bytes(image: Path) -> str:
    """Returns 16 hex digits of the hash of an image's bytes, or of those that its box is in."""
    if packed := split_packed(image):
        return hashlib.sha256(read_packed(packed)).hexdigest()[:16]
    with open_regular(split_box(image)[0]) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


def _hash_pixels(pixels: Tensor) -> str:
    """Returns 16 hex digits of the hash of an image, which depend on its size too."""
    rows = pixels.movedim(0, -1).contiguous()
    digest = hashlib.sha256(str(tuple(rows.shape)).encode())
    digest.update(rows.numpy().data)
    return digest.hexdigest()[:16]


def find_undecodable(images: Sequence[Path], max_pixels: int = MAX_IMAGE_PIXELS) -> dict[int, str]:
    """Returns row → error message for every image that cannot be decoded."""
    checked = _check_all(images, max_pixels)
    problems = {}
    for row, image in enumerate(checked):
        if image.problem is not None:
            problems[row] = image.problem
    return problems


def _check_all(images: Sequence[Path], max_pixels: int) -> list[Checked]:
    checked = map_in_threads(partial(check_image, max_pixels=max_pixels), images)
    return list(show_progress(checked, "decoding image", len(images)))


def _list_problems(checked: Sequence[Checked]) -> list[str]:
    return [image.problem for image in checked if image.problem is not None]


class Inspection(NamedTuple):
    """What a check of all images of a dataset finds.

    Attributes:
        dataset: with what is known of its images.
        problems: why images cannot be decoded, a line each.
        copies: the pairs of equal images in different classes.
    """

    dataset: ImageIndex
    problems: list[str]
    copies: list[tuple[Path, Path]]


def inspect_images(index: ImageIndex) -> Inspection:
    """Decodes every image of a dataset and returns what is known then."""
    if index.files is None:
        return Inspection(index, [], [])
    checked = _check_all(index.files, index.max_pixels)
    copies = [(index.files[first], index.files[row]) for first, row in _find_copies(index, checked)]
    return Inspection(_describe(index, checked), _list_problems(checked), copies)


def first_of_classes(index: ImageIndex) -> ImageIndex:
    """Returns the index of the first image of each class alone."""
    _, rows = np.unique(index.labels, return_index=True)
    return _take_rows(index, rows)


def _take_rows(index: ImageIndex, rows: np.ndarray) -> ImageIndex:
    """Returns the index of some images, with their labels in the whole dataset."""
    return replace(
        index,
        images=[index.images[row] for row in rows],
        labels=index.labels[rows],
        roles=index.roles[rows],
        categories=Subset(index, rows).categories,
    )


def check_images(index: ImageIndex) -> None:
    """Checks that every image can be decoded.

    Raises:
        UserError: an image cannot be decoded; the message has a line per image.
    """
    problems = inspect_images(index).problems
    if problems:
        damaged = count_of(len(problems), "damaged image")
        raise UserError("\n".join([*problems, f"{index.name}: {damaged}; replace them"]))


def exclude_undecodable(index: ImageIndex, skip: bool, folder: Path) -> ImageIndex:
    """Returns the index without images that cannot be decoded, with a hash of its content.

    Every image is decoded once; later calls read what is known of it from a file in `folder`, if
    that is writable, until its size or modification time changes. Notes say how many images are
    transparent, and which are in two classes.

    Args:
        index: the dataset.
        skip: exclude these images; False: raise an error.
        folder: the folder of the stored result.

    Raises:
        UserError: an image cannot be decoded and `skip` is False; a line per image.
        KeyboardInterrupt, RunStopped: at a signal while decoding.
    """
    if index.files is None:
        return index
    checked = _read_or_check(index.files, folder, index.max_pixels)
    kept = np.array([row for row, image in enumerate(checked) if image.problem is None], int)
    problems = _list_problems(checked)
    if problems and not skip:
        advice = (
            f"data: {len(problems)} of {len(index.images)} images of {index.name} cannot be "
            f"decoded; replace them, or set data.skip_corrupt=true to leave them out"
        )
        problems.append(advice)
        raise UserError("\n".join(problems))
    if problems:
        classes, labels = np.unique(index.labels[kept], return_inverse=True)
        index = replace(
            _take_rows(index, kept),
            labels=labels.astype(np.int64),
            class_names=tuple(index.class_names[label] for label in classes if index.class_names),
            skipped=len(problems),
            notes=(*index.notes, _describe_skipped(index, checked)),
        )
    return _describe(index, [checked[row] for row in kept])


def _describe_skipped(index: ImageIndex, checked: Sequence[Checked]) -> str:
    rows = [row for row, image in enumerate(checked) if image.problem is not None]
    shown = ", ".join(show_line(str(index.images[row])) for row in rows[:SHOWN])
    left_out = verb_for(len(rows), "is left out", "are left out")
    return (
        f"data: {len(rows)} of {len(checked)} images cannot be decoded and {left_out} "
        f"(data.skip_corrupt): {shown}"
    )


def count_transparent(index: ImageIndex) -> ImageIndex:
    """Returns the index with the number of its images that have transparent pixels.

    For images that no check has decoded. Only files whose header announces transparency are
    decoded; one that is damaged does not count.
    """
    if index.files is None or index.transparent is not None:
        return index
    candidates = [image for image in index.files if not is_opaque_format(split_box(image)[0])]
    look = partial(_is_transparent, max_pixels=index.max_pixels)
    return replace(index, transparent=sum(map_in_threads(look, candidates)))


def _is_transparent(image: Path, max_pixels: int) -> bool:
    try:
        with open_image(split_box(image)[0], max_pixels) as opened:
            announced = opened.has_transparency_data
        return announced and decode_image(image, max_pixels=max_pixels).transparent
    except (OSError, ValueError, SyntaxError, UserError, Image.DecompressionBombError):
        return False


def _describe(index: ImageIndex, checked: Sequence[Checked]) -> ImageIndex:
    """Returns the index with what is known of its images."""
    contents = [image.content for image in checked]
    return replace(
        index,
        content=hash_text(" ".join(contents)),
        transparent=sum(image.transparent for image in checked),
        notes=(
            *index.notes,
            *_describe_copies(index, _find_copies(index, checked)),
            *_describe_known(index, checked),
        ),
    )


def _read_or_check(images: Sequence[Path], folder: Path, max_pixels: int) -> list[Checked]:
    """Returns what is known of images; those that are new or have changed are decoded."""
    names = [str(DECODER), *map(str, images)]
    if max_pixels != MAX_IMAGE_PIXELS:
        names.append(str(max_pixels))  # by which other images are too large
    path = folder / f"checked-{hash_text(' '.join(names))}.json"
    stored: Any = None
    with suppress(OSError, UserError):
        stored = read_json(path)
    known = _parse(stored, len(images))
    changed = [row for row, image in enumerate(images) if not _is_current(image, known[row])]
    if changed:
        with raise_on_signals():
            checked = _check_all([images[row] for row in changed], max_pixels)
        for row, image in zip(changed, checked, strict=True):
            known[row] = image
        with suppress(OSError):
            write_text(path, json.dumps({"images": known}))
    return [image for image in known if image is not None]


def _parse(stored: Any, count: int) -> list[Checked | None]:
    """Returns what is stored of each image; None: nothing, or it has another form."""
    try:
        known: list[Checked | None] = [Checked(*values) for values in stored["images"]]
    except (KeyError, TypeError):
        known = []
    return known if len(known) == count else [None] * count


def _is_current(image: Path, known: Checked | None) -> bool:
    if known is None:
        return False
    status = file_of(image).stat()
    return (status.st_size, status.st_mtime_ns) == (known.size, known.modified)


def _find_copies(index: ImageIndex, checked: Sequence[Checked]) -> list[tuple[int, int]]:
    """Returns rows of equal pixels in different classes: the first of its kind, and another."""
    first: dict[str, int] = {}
    copies = []
    for row, image in enumerate(checked):
        if not image.pixels:
            continue
        other = first.setdefault(image.pixels, row)
        if index.labels[other] != index.labels[row]:
            copies.append((other, row))
    return copies


def _describe_copies(index: ImageIndex, copies: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Returns a note on equal images in different classes, which names the first; or none."""
    if not copies:
        return ()
    trained = index.roles == "train"
    between = sum(1 for first, row in copies if trained[first] != trained[row])
    shown = "; ".join(describe_pair(index.images[a], index.images[b]) for a, b in copies[:SHOWN])
    images = f"{count_of(len(copies), 'image')} {verb_for(len(copies), 'is', 'are')}"
    return (
        f"data: {images} also in another class, pixel for pixel ({between} in training and test): "
        f"{shown}",
    )


def _describe_known(index: ImageIndex, checked: Sequence[Checked]) -> tuple[str, ...]:
    """Returns a note on test images of a closed set that are training images too; or none."""
    if not index.shared_classes:
        return ()
    trained: dict[tuple[str, int], int] = {}
    held: list[tuple[tuple[str, int], int]] = []
    for row, image in enumerate(checked):
        key = image.pixels, int(index.labels[row])
        if image.pixels and index.roles[row] == "train":
            trained.setdefault(key, row)
        elif image.pixels and index.roles[row] in HELD_OUT:
            held.append((key, row))
    known = [(trained[key], row) for key, row in held if key in trained]
    if not known:
        return ()
    shown = "; ".join(describe_pair(index.images[a], index.images[b]) for a, b in known[:SHOWN])
    images = f"{count_of(len(known), 'image')} for validation or test"
    return (
        f"data: {images} {verb_for(len(known), 'is', 'are')} also in training, pixel for pixel, so "
        f"that scores are too high; remove the copies: {shown}",
    )


def describe_pair(first: Path, other: Path) -> str:
    """Returns the names of two equal images."""
    return f"{show_line(str(first))} and {show_line(str(other))}"
