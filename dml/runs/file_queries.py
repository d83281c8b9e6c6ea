"""Neighbors and classes of queries in a file of embeddings: `dml.search` and `dml.classify`.

Queries that are rows of the file need neither torch nor pandas, which are imported late.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dml.core.errors import UserError
from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.core.outputs import check_not_input
from dml.core.text_columns import plain_text_columns
from dml.retrieval.embedding_file import ImageEmbeddings, open_for_search
from dml.retrieval.file_classification import classify_file
from dml.retrieval.file_search import Columns, search_file

if TYPE_CHECKING:
    import pandas as pd

MOST_PIXELS = 2**31  # fewer than that, as in the schema


def search(
    embeddings: str | Path,
    queries: Sequence[str | Path | int] | str | Path | int,
    k: int = 10,
    *,
    picture: str | Path | None = None,
    index: bool | str = False,
    overwrite: bool = False,
    trust: bool = False,
    max_pixels: int = MAX_IMAGE_PIXELS,
    max_distance: float | None = None,
) -> pd.DataFrame:
    """Returns the k nearest images of each query, by Euclidean distance in float64.

    Ties go to the lower row. A query that is in the file is left out of its own neighbors. Of a
    compressed file, distances are those to the decoded vectors, and codes of signs are candidates
    by their Hamming distance (`dml.retrieval.compressed_search`).

    Args:
        embeddings: a file of `dml.embed`, of `dml evaluate save=`, or of other software.
        queries: images, or row numbers of the file, from 0; a list or a single one. The network
            that made the file embeds images that are not in it.
        k: neighbors of each query; of a smaller file all, with a note.
        picture: a PNG of the queries and their neighbors, framed green if the class is the query's,
            else red, and grey if classes are not known.
        index: candidates come from an index of faiss, which the first call builds and saves beside
            the file: True, or a factory string of faiss such as "HNSW32"; False: all rows are
            compared.
        overwrite: replace any file; by default only a picture of a search in the same file.
        trust: the network that made the file may be of a hub, or name any class or function; see
            `dml.load`.
        max_pixels: largest height × width of a query and of an image in the picture.
        max_distance: neighbors at this distance or beyond are left out, as pairs that do not match
            at this threshold (`dml.retrieval.match_thresholds`); None: none are.

    Returns:
        A row for each neighbor, with query, query_label, rank, distance, row, label, path and
        duplicate, which is True for an image with the query's own embedding.

    Raises:
        UserError: the file or an image cannot be read, a row does not exist, k is below 1, the
            network is missing or has changed, or faiss is not installed.
    """
    columns = search_columns(
        embeddings,
        queries,
        k,
        picture=picture,
        index=index,
        overwrite=overwrite,
        trust=trust,
        max_pixels=max_pixels,
        max_distance=max_distance,
    )
    return _as_table(select_matches(columns))


def search_columns(
    embeddings: str | Path,
    queries: Sequence[str | Path | int] | str | Path | int,
    k: int,
    *,
    picture: str | Path | None = None,
    index: bool | str = False,
    overwrite: bool = False,
    trust: bool = False,
    max_pixels: int = MAX_IMAGE_PIXELS,
    max_distance: float | None = None,
) -> Columns:
    """Returns the columns of the table of `search`, whose arguments these are.

    Neighbors beyond the largest distance are there too: the column `matches` tells them.
    """
    _check_limits(max_pixels, max_distance)
    queries = _list_queries(queries)
    origin = f"search {Path(embeddings).name}"
    if picture is not None:
        from dml.runs.figures.drawing import check_picture

        check_picture(Path(picture), "picture", overwrite, origin)
        check_not_input(Path(picture), "picture", embeddings, *map(str, queries))
    names, columns = search_file(
        embeddings, queries, k, _embedding(embeddings, trust, max_pixels), index
    )
    limit = np.inf if max_distance is None else max_distance
    columns["matches"] = columns["distance"] < limit
    if picture is not None:
        from dml.runs.image_queries import draw_neighbors

        made_by = open_for_search(embeddings).stored.made_by
        draw_neighbors(names, _as_table(columns), Path(picture), made_by, origin, max_pixels)
    return columns


def select_matches(columns: Columns) -> Columns:
    """Returns the rows of `search_columns` that are nearer than the largest distance."""
    selected = {}
    for name, values in columns.items():
        if name != "matches":
            selected[name] = values[columns["matches"]]
    return selected


def classify(
    embeddings: str | Path,
    queries: Sequence[str | Path | int] | str | Path | int,
    k: int = 10,
    *,
    max_distance: float | None = None,
    index: bool | str = False,
    trust: bool = False,
    max_pixels: int = MAX_IMAGE_PIXELS,
) -> pd.DataFrame:
    """Returns the class of each query by its nearest neighbors, and by the nearest class mean.

    Of classes with equal votes, that of the nearest neighbor counts. A class mean is that of all
    rows of a class; if the embeddings have length 1, the mean is given this length too. A query
    that is in the file is left out of its neighbors and of the mean of its class.

    Args:
        embeddings: see `dml.search`; a file with labels.
        queries: see `dml.search`.
        k: neighbors of each query; of a smaller file all, with a note. Another note counts classes
            with fewer images, which larger ones may outvote.
        max_distance: neighbors at this distance or beyond have no vote, and a class mean there is
            not the query's. Where nothing is left, the class is `unknown`. None: no limit.
        index, trust, max_pixels: see `dml.search`.

    Returns:
        A row for each query, with query, query_label (None: not known); neighbors, the class of
        most of them, votes, its share of the votes (0–1; 0: unknown), and neighbor_distance, that
        of the nearest of this class, or of all for an unknown class; class_mean, and mean_distance.

    Raises:
        UserError: the file has no labels; and see `dml.search`.
    """
    columns = classify_columns(
        embeddings,
        queries,
        k,
        max_distance=max_distance,
        index=index,
        trust=trust,
        max_pixels=max_pixels,
    )
    return _as_table(columns)


def classify_columns(
    embeddings: str | Path,
    queries: Sequence[str | Path | int] | str | Path | int,
    k: int,
    *,
    max_distance: float | None = None,
    index: bool | str = False,
    trust: bool = False,
    max_pixels: int = MAX_IMAGE_PIXELS,
) -> Columns:
    """Returns the columns of the table of `classify`, whose arguments these are."""
    _check_limits(max_pixels, max_distance)
    queries = _list_queries(queries)
    embed_queries = _embedding(embeddings, trust, max_pixels)
    return classify_file(embeddings, queries, k, embed_queries, index, max_distance)


def _list_queries(queries: Any) -> Sequence[str | Path | int]:
    """Returns one or several queries as a list."""
    is_one = isinstance(queries, str | Path | int | np.integer)
    return [queries] if is_one else queries


def _check_limits(max_pixels: int, max_distance: float | None) -> None:
    """Checks limits of a search.

    Raises:
        UserError: one is out of its range.
    """
    check_max_pixels(max_pixels)
    if max_distance is not None and not max_distance > 0:
        raise UserError(f"max_distance: {max_distance} must be a distance above 0")


def check_max_pixels(max_pixels: int) -> None:
    """Raises UserError if a limit on the size of images is out of its range."""
    if not 1 <= max_pixels < MOST_PIXELS:
        raise UserError(f"max_pixels: {max_pixels} is not between 1 and {MOST_PIXELS - 1:,}")


def _embedding(
    path: str | Path, trust: bool, max_pixels: int
) -> Callable[[Sequence[str], ImageEmbeddings], np.ndarray]:
    """Returns a function that embeds images which are not in a file."""

    def embed(images: Sequence[str], stored: ImageEmbeddings) -> np.ndarray:
        from dml.runs.image_queries import embed_queries

        return embed_queries(images, stored, path, trust, max_pixels)

    return embed


@plain_text_columns()
def _as_table(columns: dict[str, Any]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(columns)
