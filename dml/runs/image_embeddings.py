"""Embeddings of any images by a network: `dml.embed`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from dml.core.errors import UserError
from dml.retrieval import embedding_file
from dml.retrieval.embedding_file import ImageEmbeddings
from dml.runs.embed_images.append import append_images, check_append
from dml.runs.embed_images.new_file import embed_all
from dml.runs.embed_images.request import Request
from dml.runs.network_options import check_options
from dml.training.process_state import restored_process_state

MOST_THUMBNAIL = 1024  # pixels of a side


@restored_process_state()
def embed(
    network: str | Path,
    images: str | Path | Sequence[Any] | np.ndarray,
    output: str | Path | None = None,
    *,
    repeat: int | None = None,
    fold: int | None = None,
    features: bool = False,
    views: int = 0,
    dtype: Literal["float32", "float16"] = "float32",
    batch_size: int | None = None,
    options: Sequence[str] = (),
    overwrite: bool = False,
    trust: bool = False,
    skip_corrupt: bool = False,
    thumbnails: int = 0,
    append: bool = False,
    compress: str | None = None,
) -> ImageEmbeddings:
    """Embeds images in batches, as `dml evaluate` does; memory does not depend on their number.

    The same call continues one that was interrupted, and its result is the same bit for bit.

    Args:
        network: see `dml.load`.
        images: a folder, a list of paths in a file (see `readers.folder.list_images`) or in
            Python, uint8 pixels N×H×W×3, images (see `ImageIndex.images`), or a dataset
            (`data=cub`), with its splits. Files of a user are rotated upright by their EXIF
            orientation.
        output: a file that ends in `.npz` or `.parquet`; None: a temporary one.
        repeat, fold: see `dml.load`.
        features: the pooled features of the backbone instead of embeddings.
        views: augmentations of each image that are embedded too, as the network was trained.
        dtype: of the file; `float16` has half the size and about three digits.
        batch_size: images per batch; None: by device and image size.
        options: of `dml evaluate`, for a network of timm and for a dataset:
            `["backbone.input_size=64", "data.root=data"]`.
        overwrite: replace any file; by default only one of the same network and images.
        trust: see `dml.load`.
        skip_corrupt: leave out images that cannot be decoded, which are listed; every image is
            decoded before.
        thumbnails: pixels of the longer side of JPEGs that a `.parquet` file carries, with the ten
            nearest neighbors of each image, for viewers of such files
            (`dml.retrieval.viewer_columns`); 0: none.
        append: keep the rows of `output` whose image has not changed, embed new and changed images,
            and drop rows of images that `images` (a folder, a list in a file, or an image) no
            longer has; rows of other folders and lists stay. Without such a file it is made. All
            rows are in memory while it is written.
        compress: form in which embeddings are stored (`dml.core.compression_forms`), such as
            `int8` or `pca128+binary`; fitted on the images of the split train of a dataset, else on
            all images, and by `append` as in the file. The result holds the decoded vectors.

    Raises:
        UserError: network or images cannot be read, an image cannot be decoded, the form does not
            fit the embeddings, or the file cannot be written.
        ConfigError: options without effect.
    """
    check_options(network, images, options)
    request = Request(
        str(network),
        images,
        repeat,
        fold,
        features,
        views,
        dtype,
        batch_size,
        options,
        trust,
        skip_corrupt,
        compress,
    )
    with _advise_to_skip():
        return embed_request(request, output, overwrite, thumbnails, append)


def embed_request(
    request: Request,
    output: str | Path | None = None,
    overwrite: bool = False,
    thumbnails: int = 0,
    append: bool = False,
) -> ImageEmbeddings:
    """See `embed`; the options of a request may be those that a file of embeddings holds."""
    request.check()
    _check_thumbnails(thumbnails, output, request.compress)
    with ExitStack() as stack:
        if output is None:
            if append:
                raise UserError("append: there is no file to append to; give output")
            output = Path(stack.enter_context(TemporaryDirectory()), "embeddings.npz")
        path = Path(output)
        embedding_file.check_format(path)
        if append:
            check_append(request, path, overwrite, thumbnails)
        if append and path.exists():
            return append_images(request, path)
        return embed_all(request, path, overwrite, thumbnails)


def _check_thumbnails(side: int, output: str | Path | None, compress: str | None) -> None:
    """Raises UserError if thumbnails have no file that takes them, or a side out of its range."""
    if not side:
        return
    if compress is not None:
        raise UserError(
            "compress: viewers of a file with thumbnails read plain embeddings; leave one of "
            "--compress and --thumbnails out"
        )
    if not 1 <= side <= MOST_THUMBNAIL:
        raise UserError(f"thumbnails: {side} is not between 1 and {MOST_THUMBNAIL}")
    if output is None or Path(output).suffix != embedding_file.PARQUET:
        raise UserError(
            f"thumbnails: a {embedding_file.PARQUET} file carries them; choose such an output"
        )


@contextmanager
def _advise_to_skip() -> Iterator[None]:
    """Adds the option that leaves out damaged images to the error of the first."""
    try:
        yield
    except UserError as error:
        if "cannot decode" not in str(error):
            raise
        raise UserError(
            f"{error}; --skip-corrupt leaves out such images, and lists them"
        ) from error
