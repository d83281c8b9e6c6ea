"""Picture of the queries on which two networks differ: each query and its neighbors by both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from dml.core.plain_text import shorten, show_line
from dml.retrieval.paired_queries import PairedQueries
from dml.retrieval.pictures import CAPTION_LENGTH, draw_grids
from dml.runs.figures.drawing import GREEN, GREY, RED, save

QUERIES = 10


def draw_differences(
    pairs: PairedQueries,
    load: Callable[[int], Tensor],
    class_name: Callable[[int], str],
    path: Path,
    origin: str,
    metric: str = "map_at_r",
) -> None:
    """Draws the queries whose score differs by the largest amounts, and their nearest neighbors.

    Neighbors of the query's class are framed green and called right, others red and wrong.

    Args:
        pairs: of which some query differs.
        load: returns the image (uint8 3×H×W) at a position in `pairs.first.names`.
        class_name: returns the name of the class of that image.
        path: PNG to write.
        origin: see `save`.
        metric: whose differences count.
    """
    queries = pairs.rank_differences(metric)[:QUERIES]
    before, after = pairs.first, pairs.second
    scores = before.values[metric], after.values[metric][pairs.to_second[: len(before.relevant)]]
    captions = []
    for query in queries:
        change = f"{100 * scores[0][query]:.1f} → {100 * scores[1][query]:.1f}"
        captions.append(_caption(change, class_name(query), Path(before.names[query]).name))
    grids = {"query": (map(load, queries.tolist()), [GREY] * len(queries))}
    texts: dict[str, Sequence[str]] = {"query": captions}
    nearest = {
        before.title: before.nearest[queries],
        after.title: pairs.to_first[after.nearest[pairs.to_second[queries]]],
    }
    for title, rows in nearest.items():
        right = before.labels[rows] == before.labels[queries][:, None]
        name = title if title not in grids else f"{title} "  # a run beside itself
        frames = np.where(right, GREEN, RED).ravel().tolist()
        grids[name] = map(load, rows.ravel().tolist()), frames
        texts[name] = list(_verdicts(rows, right, class_name))
    title = f"largest differences of MAP@R, percent: {before.title} → {after.title}"
    save(draw_grids(grids, title, texts), path, origin)


def _verdicts(
    rows: np.ndarray, right: np.ndarray, class_name: Callable[[int], str]
) -> Iterator[str]:
    """Yields the text below each neighbor."""
    for position, is_right in zip(rows.ravel().tolist(), right.ravel(), strict=True):
        verdict = "right" if is_right else "wrong"
        yield _caption(verdict, class_name(position))


def _caption(*lines: str) -> str:
    return "\n".join(shorten(show_line(line), CAPTION_LENGTH) for line in lines)
