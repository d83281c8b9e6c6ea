"""Check of a user's images: which cannot be decoded, are transparent, have changed or are equal."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
from PIL import Image
from torch import Tensor

from dml.core.atomic_io import replace_file
from dml.core.counts import count_of, verb_for
from dml.core.errors import UserError
from dml.core.locks import wait_for_lock
from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.core.plain_text import show_line
from dml.core.progress import show_progress
from dml.core.regular_files import open_regular
from dml.core.signals import raise_on_signals
from dml.data.decode import DECODER, decode_image, is_opaque_format, map_in_threads, open_image
from dml.data.image_formats import advise
from dml.data.image_index import (
    HELD_OUT,
    ImageIndex,
    Subset,
    hash_words,
    read_states,
    split_box,
)
from dml.data.image_names import PART, take_images, texts_of
from dml.data.packed_images import read_packed, split_packed

SHOWN = 3  # images in a note


# What is stored of an image. `state` has the bits below; numbers of a bit that is not set are 0.
RECORD = np.dtype(
    [("size", "<i8"), ("modified", "<i8"), ("content", "<u8"), ("pixels", "<u8"), ("state", "u1")]
)
KNOWN, HAS_CONTENT, DECODED, TRANSPARENT = 1, 2, 4, 8
SAVE_SECONDS = 30.0  # between two times that an unfinished check is stored
# Errors of a file that is cut off, or that other software has written.
DAMAGED = (ValueError, TypeError, AttributeError, LookupError, EOFError, OverflowError, BadZipFile)
DIGITS = 16  # of a hash, in hexadecimal


class Checked(NamedTuple):
    """What is known of an image after it was decoded.

    Attributes:
        content: hash of the bytes of its file; None: the file cannot be read, or not yet.
        pixels: hash of the decoded pixels; None: it cannot be decoded.
        transparent: whether a pixel is not opaque.
        problem: why it cannot be decoded; None: it can be.
    """

    content: int | None
    pixels: int | None
    transparent: bool
    problem: str | None


@dataclass
class CheckedImages:
    """What is known of N images after they were decoded.

    Attributes:
        records: N records of type `RECORD`.
        problems: row → why an image cannot be decoded.
    """

    records: np.ndarray
    problems: dict[int, str] = field(default_factory=dict)

    def put(self, row: int, image: Checked, size: int, modified: int) -> None:
        """Takes what is known of an image, and size and time of its file before it was read."""
        state = KNOWN
        state |= HAS_CONTENT if image.content is not None else 0
        state |= DECODED if image.pixels is not None else 0
        state |= TRANSPARENT if image.transparent else 0
        self.records[row] = size, modified, image.content or 0, image.pixels or 0, state
        self.problems.pop(row, None)
        if image.problem is not None:
            self.problems[row] = image.problem

    def take(self, rows: np.ndarray) -> CheckedImages:
        """Returns what is known of some images, all of which could be decoded."""
        return CheckedImages(self.records[rows])

    def has(self, bit: int) -> np.ndarray:
        """Returns of each image whether a bit is set, N."""
        return (self.records["state"] & bit) > 0

    def contents(self) -> Iterator[str]:
        """Yields the hash of each image's bytes; empty for a file that cannot be read."""
        known = self.has(HAS_CONTENT)
        for first in range(0, len(known), PART):
            rows = slice(first, first + PART)
            hashes = self.records["content"][rows].tolist()
            for content, is_known in zip(hashes, known[rows].tolist(), strict=True):
                yield f"{content:0{DIGITS}x}" if is_known else ""


def check_image(
    image: Path, max_pixels: int = MAX_IMAGE_PIXELS, apply_orientation: bool = False
) -> Checked:
    """Decodes an image, or a box of one, and returns what is known of it then.

    With `apply_orientation` boxes are those of the upright image.
    """
    content = None
    with suppress(OSError):
        content = _hash_bytes(image)
    try:
        decoded = decode_image(image, apply_orientation=apply_orientation, max_pixels=max_pixels)
    except UserError as error:
        lasting = content if _is_lasting(image, error) else None
        return Checked(lasting, None, False, str(error))
    return Checked(content, _hash_pixels(decoded.pixels), decoded.transparent, None)


def _is_lasting(image: Path, error: UserError) -> bool:
    """Returns whether an image cannot be decoded for as long as its file stays as it is.

    Not so if the system could not read it, or if a library is missing.
    """
    reason = error.__cause__
    is_of_system = isinstance(reason, OSError) and reason.errno is not None
    return not is_of_system and not advise(split_box(image)[0].name)


def _hash_bytes(image: Path) -> int:
    """Returns the hash of an image's bytes, or of those that its box is in, in 64 bits."""
    if packed := split_packed(image):
        return _as_number(hashlib.sha256(read_packed(packed)).hexdigest())
    with open_regular(split_box(image)[0]) as opened:
        return _as_number(hashlib.file_digest(opened, "sha256").hexdigest())


def _hash_pixels(pixels: Tensor) -> int:
    """Returns the hash of an image in 64 bits, which depends on its size too."""
    rows = pixels.movedim(0, -1).contiguous()
    digest = hashlib.sha256(str(tuple(rows.shape)).encode())
    digest.update(rows.numpy().data)
    return _as_number(digest.hexdigest())


def _as_number(digest: str) -> int:
    return int(digest[:DIGITS], 16)


def find_undecodable(
    images: Sequence[Path], max_pixels: int = MAX_IMAGE_PIXELS, apply_orientation: bool = False
) -> dict[int, str]:
    """Returns row → error message for every image that cannot be decoded."""
    check = partial(check_image, max_pixels=max_pixels, apply_orientation=apply_orientation)
    return _check_all(images, check).problems


def _checker(index: ImageIndex) -> Callable[[Path], Checked]:
    """Returns the check of an image of a dataset."""
    return partial(
        check_image, max_pixels=index.max_pixels, apply_orientation=index.apply_orientation
    )


def _check_all(images: Sequence[Path], check: Callable[[Path], Checked]) -> CheckedImages:
    checked = CheckedImages(np.zeros(len(images), RECORD))
    results = map_in_threads(check, images)
    for row, result in enumerate(show_progress(results, "decoding image", len(images))):
        checked.put(row, result, 0, 0)
    return checked


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
    checked = _check_all(index.files, _checker(index))
    copies = [(index.files[first], index.files[row]) for first, row in _find_copies(index, checked)]
    return Inspection(_describe(index, checked), [*checked.problems.values()], copies)


def first_of_classes(index: ImageIndex) -> ImageIndex:
    """Returns the index of the first image of each class alone."""
    _, rows = np.unique(index.labels, return_index=True)
    return _take_rows(index, rows)


def _take_rows(index: ImageIndex, rows: np.ndarray) -> ImageIndex:
    """Returns the index of some images, with their labels in the whole dataset."""
    return replace(
        index,
        images=take_images(index.images, rows),
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
    that is writable, until its size or modification time changes. A check that is interrupted
    continues where it stopped. Notes say how many images are transparent, and which are in two
    classes.

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
    checked = _read_or_check(index, index.files, folder)
    kept = np.flatnonzero(checked.has(DECODED))
    problems = [checked.problems[row] for row in sorted(checked.problems)]
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
    return _describe(index, checked.take(kept))


def _describe_skipped(index: ImageIndex, checked: CheckedImages) -> str:
    rows = sorted(checked.problems)
    shown = ", ".join(show_line(str(index.images[row])) for row in rows[:SHOWN])
    left_out = verb_for(len(rows), "is left out", "are left out")
    return (
        f"data: {len(rows)} of {len(checked.records)} images cannot be decoded and {left_out} "
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
    look = partial(
        _is_transparent, max_pixels=index.max_pixels, apply_orientation=index.apply_orientation
    )
    return replace(index, transparent=sum(map_in_threads(look, candidates)))


def _is_transparent(image: Path, max_pixels: int, apply_orientation: bool) -> bool:
    try:
        with open_image(split_box(image)[0], max_pixels) as opened:
            announced = opened.has_transparency_data
        if not announced:
            return False
        return decode_image(image, apply_orientation, max_pixels=max_pixels).transparent
    except (OSError, ValueError, SyntaxError, UserError, Image.DecompressionBombError):
        return False


def _describe(index: ImageIndex, checked: CheckedImages) -> ImageIndex:
    """Returns the index with what is known of its images."""
    return replace(
        index,
        content=hash_words(checked.contents()),
        transparent=int(checked.has(TRANSPARENT).sum()),
        notes=(
            *index.notes,
            *_describe_copies(index, _find_copies(index, checked)),
            *_describe_known(index, checked),
        ),
    )


def _read_or_check(index: ImageIndex, images: Sequence[Path], folder: Path) -> CheckedImages:
    """Returns what is known of the images of a dataset.

    Those are decoded that are new, have changed, or could not be read for a reason that may be
    gone (`_is_lasting`).
    """
    names: Iterable[str] = chain([str(DECODER)], texts_of(images))
    if index.max_pixels != MAX_IMAGE_PIXELS:
        names = chain(names, [str(index.max_pixels)])  # by which other images are too large
    if index.apply_orientation:
        names = chain(names, ["upright"])  # boxes of other pixels
    path = folder / f"checked-{hash_words(names)}.npz"
    states = _read_states(images)
    checked = _load(path, len(images))
    if not len(_find_changed(checked, states)):
        return checked
    with raise_on_signals(), ExitStack() as stack:
        with suppress(OSError):  # nothing can be written there
            stack.enter_context(wait_for_lock(path.with_suffix(".lock"), f"writing {path}"))
            checked = _load(path, len(images))  # another process may have had the lock
        _check_changed(images, states, checked, path, _checker(index))
    return checked


def _check_changed(
    images: Sequence[Path],
    states: np.ndarray,
    checked: CheckedImages,
    path: Path,
    check: Callable[[Path], Checked],
) -> None:
    """Decodes images that are new or have changed, and stores what is known, also if interrupted.

    Args:
        images: N paths.
        states: size and modification time (ns) of their files, N×2.
        checked: what is known of them, which is changed.
        path: of the stored result.
        check: of an image.
    """
    changed = _find_changed(checked, states).tolist()
    saved = time.monotonic()
    # Closed explicitly: the traceback of a signal would keep the decoding threads running.
    with closing(map_in_threads(check, (images[row] for row in changed))) as results:
        try:
            shown = show_progress(results, "decoding image", len(changed))
            for row, result in zip(changed, shown, strict=True):
                checked.put(row, result, *states[row])
                if time.monotonic() - saved > SAVE_SECONDS:
                    _save(path, checked)
                    saved = time.monotonic()
        finally:
            _save(path, checked)


def _read_states(images: Sequence[Path]) -> np.ndarray:
    """Returns size and modification time (ns) of the file of each image, N×2."""
    states = np.empty((len(images), 2), np.int64)
    for row, state in enumerate(read_states(images)):
        states[row] = state
    return states


def _find_changed(checked: CheckedImages, states: np.ndarray) -> np.ndarray:
    """Returns the rows that are new, have changed or could not be read."""
    records = checked.records
    known = np.stack([records["size"], records["modified"]], axis=1)
    is_current = checked.has(KNOWN) & checked.has(HAS_CONTENT) & (known == states).all(axis=1)
    return np.flatnonzero(~is_current)


def _load(path: Path, count: int) -> CheckedImages:
    """Returns what is stored of images; of those in a file of another form nothing."""
    with (
        suppress(OSError, *DAMAGED),
        open_regular(path) as opened,
        np.load(opened, allow_pickle=False) as arrays,
    ):
        records, stored = arrays["records"], json.loads(arrays["problems"].tobytes())
        is_ours = records.dtype == RECORD and records.shape == (count,)
        problems = {int(row): str(problem) for row, problem in stored.items()}
        checked = CheckedImages(records, problems)
        if is_ours and _has_all_problems(checked):
            return checked
    return CheckedImages(np.zeros(count, RECORD))


def _has_all_problems(checked: CheckedImages) -> bool:
    """Returns whether each image that was not decoded has its problem, and no other."""
    failed = checked.has(KNOWN) & ~checked.has(DECODED)
    return sorted(checked.problems) == np.flatnonzero(failed).tolist()


def _save(path: Path, checked: CheckedImages) -> None:
    problems = json.dumps(checked.problems).encode()
    with suppress(OSError), replace_file(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, records=checked.records, problems=np.frombuffer(problems, np.uint8))


def _find_copies(index: ImageIndex, checked: CheckedImages) -> list[tuple[int, int]]:
    """Returns rows of equal pixels in different classes: the first of its kind, and another."""
    rows = np.flatnonzero(checked.has(DECODED))
    pixels = checked.records["pixels"][rows]
    _, first, kinds = np.unique(pixels, return_index=True, return_inverse=True)
    others = rows[first][kinds]
    is_copy = index.labels[others] != index.labels[rows]
    return list(zip(others[is_copy].tolist(), rows[is_copy].tolist(), strict=True))


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


def _describe_known(index: ImageIndex, checked: CheckedImages) -> tuple[str, ...]:
    """Returns a note on test images of a closed set that are training images too; or none."""
    if not index.shared_classes:
        return ()
    _, kinds = np.unique(checked.records["pixels"], return_inverse=True)
    keys = kinds * (int(index.labels.max()) + 1) + index.labels  # equal for equal pixels and class
    is_decoded = checked.has(DECODED)
    trained = np.flatnonzero(is_decoded & (index.roles == "train"))
    held = np.flatnonzero(is_decoded & np.isin(index.roles, HELD_OUT))
    repeated = held[np.isin(keys[held], keys[trained])]
    sorted_keys, first = np.unique(keys[trained], return_index=True)
    originals = trained[first[np.searchsorted(sorted_keys, keys[repeated])]]
    known = list(zip(originals.tolist(), repeated.tolist(), strict=True))
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
