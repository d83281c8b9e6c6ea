"""Scores of vectors in fewer bytes: `evaluation.compress`.

Queries stay float32 vectors, of fewer dimensions where the form has fewer, and the gallery is what
is stored: as where a new image is searched in stored vectors. Where the queries are the gallery,
each is left out of its own neighbors.

Shapes: B queries, N gallery items, D dimensions, n queries of one chunk, k neighbors, R rows of
scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dml.core.compression_forms import BINARY
from dml.core.errors import UserError
from dml.core.metric_names import RECALL
from dml.core.statistics import clustered_mean
from dml.retrieval.compressed_search import RESCORED, nearest_signs, rescore
from dml.retrieval.compression import Compression, Floats
from dml.retrieval.embeddings import SplitEmbeddings
from dml.retrieval.metrics import METRICS, score_rankings
from dml.retrieval.query_scores import score_queries

MAP_AT_R = "map_at_r"
CHUNK = 1 << 22  # entries of rankings at once


@dataclass(frozen=True)
class Fitting:
    """Vectors by which forms are fitted.

    Attributes:
        points: M×D.
        description: of them, in words.
        is_scored: whether they are the scored vectors themselves, which favors the forms.
    """

    points: NDArray[Any]
    description: str
    is_scored: bool


def score_forms(
    embeddings: SplitEmbeddings,
    forms: Sequence[str],
    fitting: Fitting,
    recall_at: Sequence[int],
    backend: str = "auto",
) -> dict[str, Any]:
    """Returns the scores of uncompressed vectors, and of each form.

    Of `binary`, the 100 items of the least Hamming distance are ranked by the float32 query, and
    the others follow by Hamming distance (`dml.retrieval.compressed_search`).

    Args:
        embeddings: of queries and gallery.
        forms: their names.
        fitting: the vectors by which the forms are fitted.
        recall_at: values of K of Recall@K.
        backend: see `dml.retrieval.retrieval_metrics`.

    Returns:
        `fitted_on` and `fitted_on_scored`, of `fitting`; `queries`, those with a match, and their
        number of `classes`; and `rows`, a mapping for each form, the first one of uncompressed
        vectors: `form`, `bytes` of a vector, and `metrics`: by name (`recall_at_<K>`, `map_at_r`)
        the `mean` over the queries (0–1), and `difference` from that of the first row, each with
        `low` and `high`: 95 % intervals over the classes (`dml.core.statistics.clustered_mean`),
        which are paired for differences; None for a single class.

    Raises:
        UserError: a form does not fit the vectors, or vectors or labels are refused.
    """
    scorer = _FormScorer(embeddings, recall_at, backend)
    uncompressed = scorer.score_exactly(embeddings)
    width, size = embeddings.query.shape[1], embeddings.query.element_size()
    names = [str(embeddings.query.dtype).removeprefix("torch.")]
    counts, scores = [width * size], [uncompressed]
    for name in dict.fromkeys(forms):
        try:
            compression = Compression.fit(name, fitting.points, fitting.description)
            scores.append(scorer.score(compression))
        except ValueError as error:
            raise UserError(f"evaluation.compress: {error}") from error
        names.append(name)
        counts.append(compression.form.count_bytes(width))
    classes = scorer.classes
    means = _describe_means(np.stack(scores), classes, scorer.metrics)
    rows = []
    for name, count, metrics in zip(names, counts, means, strict=True):
        rows.append({"form": name, "bytes": count, "metrics": metrics})
    return {
        "fitted_on": fitting.description,
        "fitted_on_scored": fitting.is_scored,
        "queries": len(classes),
        "classes": len(np.unique(classes)),
        "rows": rows,
    }


def _describe_means(
    scores: NDArray[np.float64], classes: NDArray[Any], metrics: Sequence[str]
) -> list[dict[str, dict[str, float | None]]]:
    """Returns by form and metric the mean and the difference from the first form.

    Args:
        scores: forms × metrics × queries.
        classes: of the queries.
        metrics: their names.
    """
    described = []
    for of_form in scores:
        by_metric: dict[str, dict[str, float | None]] = {}
        for metric, values, uncompressed in zip(metrics, of_form, scores[0], strict=True):
            mean, low, high = _interval(values, classes)
            difference, difference_low, difference_high = _interval(values - uncompressed, classes)
            by_metric[metric] = {
                "mean": mean,
                "low": low,
                "high": high,
                "difference": difference,
                "difference_low": difference_low,
                "difference_high": difference_high,
            }
        described.append(by_metric)
    return described


def _interval(
    values: NDArray[np.float64], classes: NDArray[Any]
) -> tuple[float, float | None, float | None]:
    """Returns the mean of queries and the bounds of its interval; None for a single class."""
    estimate = clustered_mean(values, classes)
    if estimate.half_width is None:
        return estimate.mean, None, None
    return estimate.mean, estimate.mean - estimate.half_width, estimate.mean + estimate.half_width


class _FormScorer:
    """Scores of the queries of a split by the forms of its vectors.

    Attributes:
        metrics: names, in the order of the scores.
        classes: of the queries with a match.
    """

    def __init__(self, embeddings: SplitEmbeddings, recall_at: Sequence[int], backend: str) -> None:
        self.recall_at, self.backend = sorted(set(recall_at)), backend
        self.metrics = [*(f"{RECALL}{K}" for K in self.recall_at), MAP_AT_R]
        self.labels, self.device = embeddings.query_labels, embeddings.query.device
        self.query: Floats = embeddings.query.cpu().numpy()
        gallery, self.gallery_labels = embeddings.gallery, embeddings.gallery_labels
        self.self_index = embeddings.self_index
        if gallery is None or self.gallery_labels is None:
            gallery, self.gallery_labels = embeddings.query, embeddings.query_labels
            self.self_index = torch.arange(len(self.labels), device=self.device)
        elif self.self_index is None:
            self.self_index = torch.full_like(self.labels, -1)
        self.gallery: Floats = gallery.cpu().numpy()
        self.classes: NDArray[Any] = np.empty(0)

    def score_exactly(self, embeddings: SplitEmbeddings) -> NDArray[np.float64]:
        """Returns the scores of the queries with a match, metrics × queries."""
        scores = score_queries(embeddings, 1, self.backend)
        rows = scores.has_match
        self.classes = self.labels.cpu().numpy()[rows]
        hits = [(scores.first_rank[rows] <= K).astype(np.float64) for K in self.recall_at]
        return np.stack([*hits, scores.map_at_r[rows]])

    def score(self, compression: Compression) -> NDArray[np.float64]:
        """Returns the scores of a form, as `score_exactly`.

        Raises:
            ValueError: vectors are too large for it.
        """
        queries, codes = compression.make_queries(self.query), compression.encode(self.gallery)
        if compression.form.type == BINARY:
            return self._score_signs(compression, queries, codes)
        stored = torch.from_numpy(compression.decode(codes)).to(self.device)
        asked = torch.from_numpy(queries).to(self.device)
        return self.score_exactly(
            SplitEmbeddings(asked, self.labels, stored, self.gallery_labels, self.self_index)
        )

    def _score_signs(
        self, compression: Compression, queries: Floats, codes: NDArray[Any]
    ) -> NDArray[np.float64]:
        assert self.gallery_labels is not None  # both are, after the constructor
        assert self.self_index is not None
        labels, items = self.labels.cpu(), self.gallery_labels.cpu()
        self_rows = self.self_index.cpu().numpy()
        relevant = torch.bincount(items, minlength=int(labels.max()) + 1)[labels]
        relevant -= torch.from_numpy(self_rows >= 0).long()
        has_match = relevant > 0
        k = max(int(relevant.max()), RESCORED, *self.recall_at)
        k = min(k, len(codes) - int((self_rows >= 0).any()))
        values = torch.zeros(len(self.metrics), len(labels), dtype=torch.float64)
        rows = has_match.nonzero().flatten()
        for part in rows.split(max(1, CHUNK // k)):
            numbers = part.numpy()
            ranked = _rank_signs(compression, queries[numbers], codes, k, self_rows[numbers])
            hits = items[torch.from_numpy(ranked)] == labels[part, None]
            for row, K in enumerate(self.recall_at):
                values[row, part] = hits[:, :K].any(dim=1).double()
            values[-1, part] = score_rankings(hits, relevant[part])[METRICS.index(MAP_AT_R)]
        return values[:, has_match].numpy()


def _rank_signs(
    compression: Compression,
    queries: Floats,
    codes: NDArray[Any],
    k: int,
    self_rows: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Returns the rows n×k of the codes, of which the first 100 are ranked again by the queries.

    Args:
        compression: of the codes, of signs.
        queries: n×C.
        codes: N×P.
        k: rows of each query.
        self_rows: n rows of the queries themselves, which are left out; −1: not among the codes.
    """
    rows = nearest_signs(compression, queries, codes, min(k + 1, len(codes)))
    # A stable sort leaves all in their order, except for the query itself.
    order = np.argsort(rows == self_rows[:, None], axis=1, kind="stable")[:, :k]
    rows = np.take_along_axis(rows, order, 1)
    rows[:, :RESCORED] = rescore(compression, queries, codes, rows[:, :RESCORED])[0]
    return rows
