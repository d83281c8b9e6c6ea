"""Embeddings of images that are stored in fewer bytes: `dml embed --compress`."""

from __future__ import annotations

import numpy as np

from dml.core.compression_forms import FITTED, parse_form
from dml.core.errors import UserError
from dml.retrieval.compression import Compression

COMPRESS = "compress"  # of `made_by` of a file
CHUNK = 65_536  # rows that are encoded at once
TRAINING = "train"


def check_form(name: str, views: int, dtype: str) -> None:
    """Checks a form before images are read.

    Args:
        name: of the form.
        views: augmentations of each image.
        dtype: of the file without a form.

    Raises:
        UserError: there is no such form, or another option excludes it.
    """
    try:
        parse_form(name)
    except ValueError as error:
        raise UserError(f"compress: {name!r} {error}") from error
    if views:
        raise UserError("compress: views are for training, which needs all bytes; leave one out")
    if dtype != "float32":
        raise UserError(f"compress: {name} and --float16 are two forms; leave --float16 out")


def check_size(name: str, width: int | None, count: int, option: str = COMPRESS) -> None:
    """Checks a form before images are embedded.

    Args:
        name: of the form.
        width: dimensions of the embeddings; None: not known yet.
        count: images by which it will be fitted.
        option: that names it, for messages.

    Raises:
        UserError: the form has too many dimensions.
    """
    form = parse_form(name)
    if form.size is None:
        return
    if width is not None and form.size > width:
        raise UserError(f"{option}: {name}: embeddings have {width} dimensions; use at most these")
    if form.reduction in FITTED and form.size >= count:
        raise UserError(
            f"{option}: {name} is fitted on more than {form.size} images, and there are {count}; "
            f"use fewer dimensions, or another form"
        )


def compress_rows(
    name: str, rows: np.ndarray, splits: np.ndarray | None
) -> tuple[np.ndarray, Compression]:
    """Returns the codes N×P of embeddings N×D, and how they are read.

    Args:
        name: of the form, which is fitted on the rows of the split train, or on all without any.
        rows: the embeddings.
        splits: N roles of the images in their dataset; None: not known.

    Raises:
        UserError: the form does not fit the embeddings.
    """
    fitted, description = rows, f"all {len(rows):,} images of the file"
    is_training = splits == TRAINING if splits is not None else np.zeros(len(rows), bool)
    count = int(is_training.sum())
    if count:
        fitted, description = rows[is_training], f"the {count:,} images of the split train"
    try:
        compression = Compression.fit(name, fitted, description)
    except ValueError as error:
        raise UserError(f"compress: {error}") from error
    return encode_rows(compression, rows), compression


def encode_rows(compression: Compression, rows: np.ndarray) -> np.ndarray:
    """Returns the codes N×P of embeddings N×D, which are read in parts.

    Raises:
        UserError: embeddings are not finite, or too large.
    """
    codes = np.empty((len(rows), compression.code_width), compression.code_dtype)
    for start in range(0, len(rows), CHUNK):
        part = slice(start, start + CHUNK)
        try:
            codes[part] = compression.encode(rows[part])
        except ValueError as error:
            raise UserError(f"compress: {error}") from error
    return codes
