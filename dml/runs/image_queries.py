"""Images that are searched in a file of embeddings, and the picture of their neighbors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import ImageColor

from dml.config.stored_network import locate_network, parse_network
from dml.core.errors import UserError
from dml.core.missing_paths import describe_missing
from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.data.decode import BACKGROUND as DEFAULT_BACKGROUND
from dml.data.image_index import file_of
from dml.retrieval.embedding_file import ImageEmbeddings
from dml.runs.embed_images.images import MAX_PIXELS
from dml.runs.embed_images.request import Request
from dml.runs.figures.run_figures import draw_search_results
from dml.runs.image_embeddings import embed_request
from dml.training.process_state import restored_process_state


def find_background(made_by: dict[str, Any]) -> str:
    """Returns the color below transparent images of a file; the default for what is no color."""
    color = made_by.get("background")
    with suppress(ValueError):
        if isinstance(color, str) and len(ImageColor.getrgb(color)) == 3:
            return color
    return DEFAULT_BACKGROUND


@restored_process_state()
def embed_queries(
    queries: Sequence[str],
    stored: ImageEmbeddings,
    path: str | Path,
    trust: bool = False,
    max_pixels: int = MAX_IMAGE_PIXELS,
) -> np.ndarray:
    """Embeds images that are not in a file by the network that the file names.

    Args:
        queries: the images.
        stored: content of the file.
        path: of the file.
        trust, max_pixels: see `dml.search`.

    Raises:
        UserError: the network is missing or has changed, or an image cannot be read.
    """
    _check_queries(queries)
    made_by = stored.made_by
    if not made_by.get("network"):
        raise UserError("query: the file does not say which network made it; take images of it")
    source = "the file of embeddings"
    network = parse_network(made_by["network"], made_by.get("options", []), source, trust)
    model = made_by.get("repeat"), made_by.get("fold")
    if not all(number is None or isinstance(number, int) for number in model):
        raise UserError(f"network: {source} names no model by its repeat and fold")
    request = Request(
        locate_network(network.name, path),
        queries,
        *model,
        features=bool(made_by.get("features")),
        options=[*network.options, f"{MAX_PIXELS}{max_pixels}"],
        trust=trust,
    )
    embedded = embed_request(request)
    if embedded.made_by["weights"] != made_by.get("weights"):
        raise UserError(f"network: {made_by['network']} has changed since it made the file")
    return embedded.embeddings


def _check_queries(queries: Sequence[str]) -> None:
    """Raises UserError for a query that is a folder, or does not exist."""
    for query in queries:
        file = file_of(query)
        if os.path.isdir(file):
            raise UserError(f"query: {query} is a folder; name images, such as {file}/*")
        if not os.path.lexists(file):
            problem = describe_missing(file, "give an image, or the number of a row")
            raise UserError(f"query: {problem}")


@restored_process_state()
def draw_neighbors(
    names: Sequence[str],
    table: pd.DataFrame,
    path: Path,
    made_by: dict[str, Any],
    origin: str,
    max_pixels: int,
) -> None:
    """Draws queries and their neighbors.

    Args:
        names: files of the queries.
        table: of `dml.search`, with a column `matches`.
        path: of the PNG.
        made_by: of the file of embeddings.
        origin: of the picture, see `check_picture`.
        max_pixels: see `dml.search`.
    """
    draw_search_results(names, table, path, find_background(made_by), origin, max_pixels)
