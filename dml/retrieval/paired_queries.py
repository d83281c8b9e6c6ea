"""Two networks on the same queries: the difference of each query, and of the means over them.

Shapes: B queries, N gallery items, k neighbors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from dml.core.errors import UserError, nearest
from dml.core.metric_names import LABELS, RECALL, can_select
from dml.core.statistics import ClusteredMean, clustered_mean
from dml.retrieval.embeddings import SplitEmbeddings, StoredNames, load_embeddings, read_names
from dml.retrieval.query_scores import QueryScores, score_queries

USUAL = ("recall_at_1", "r_precision", "map_at_r")
RECIPROCAL_RANK = "mrr_at_r"
SHOWN_NEIGHBORS = 5
FEW_CLASSES = 10  # below it, the interval is not reliable


def check_metrics(names: Iterable[str]) -> None:
    """Raises UserError for a metric that is not a mean over queries."""
    for name in names:
        is_score = can_select(name) or name == RECIPROCAL_RANK
        if not is_score or name == f"{RECALL}0":
            choices = [*LABELS, RECIPROCAL_RANK, f"{RECALL}1"]
            hint = (
                nearest(name, choices) or f"; one of {', '.join(LABELS)}, mrr_at_r, recall_at_<K>"
            )
            raise UserError(f"metrics: '{name}' is no score of each query{hint}")


@dataclass(frozen=True)
class RankedQueries:
    """The scores of the queries of a split, as means over one or several networks.

    Attributes:
        title: of the network, for messages and tables.
        names: of the B queries, and of the N gallery items after them if there are any.
        labels: classes of these images, as numbers.
        values: metric → B values, 0–1; NaN for a query without a relevant item.
        relevant: B numbers of relevant items.
        nearest: B×k positions in `names`, the nearest first, by the first network.
        class_names: of the classes, if they are known.
        lengths: the shortest and the longest length of an embedding, of the first network.
    """

    title: str
    names: Sequence[str]
    labels: np.ndarray
    values: dict[str, np.ndarray]
    relevant: np.ndarray
    nearest: np.ndarray
    class_names: Sequence[str] = ()
    lengths: tuple[float, float] = (1.0, 1.0)

    def class_name(self, position: int) -> str:
        """Returns the name or the number of the class of an image."""
        label = int(self.labels[position])
        return self.class_names[label] if self.class_names else str(label)


def rank_queries(
    title: str,
    files: Sequence[Path],
    metrics: Sequence[str],
    device: torch.device,
    backend: str = "auto",
) -> RankedQueries:
    """Returns the scores of the queries of files of embeddings.

    Args:
        title: see `RankedQueries`.
        files: of one or several networks, for the same images in the same order.
        metrics: names of scores of each query (`check_metrics`).
        device: that computes.
        backend: see `dml.retrieval.retrieval_metrics`.

    Raises:
        UserError: a file cannot be read or scored, or the files are not of the same images.
    """
    first: RankedQueries | None = None
    sums: dict[str, np.ndarray] = {}
    for file in files:
        ranked = _rank_file(title, file, metrics, device, backend)
        if first is None:
            first, sums = ranked, ranked.values
            continue
        if list(ranked.names) != list(first.names):
            raise UserError(f"compare: {file} is not of the same images as {files[0]}")
        sums = {name: sums[name] + ranked.values[name] for name in metrics}
    assert first is not None
    means = {name: values / len(files) for name, values in sums.items()}
    return replace(first, values=means)


def _rank_file(
    title: str, file: Path, metrics: Sequence[str], device: torch.device, backend: str
) -> RankedQueries:
    """Returns the scores of the queries of a file; see `rank_queries`."""
    embeddings = load_embeddings(file, device)
    try:
        scores = score_queries(embeddings, SHOWN_NEIGHBORS, backend)
    except UserError as error:
        reason = str(error).removeprefix("evaluation: ")
        raise UserError(f"embeddings: {file}: {reason}") from error
    stored = read_names(file, embeddings)
    values = {name: score_each(scores, name) for name in metrics}
    offset = 0 if embeddings.gallery is None else len(embeddings.query)
    return RankedQueries(
        title,
        _join_names(stored),
        _join_labels(embeddings),
        values,
        scores.relevant,
        scores.nearest + offset,
        stored.class_names,
        embeddings.lengths,
    )


def _join_names(stored: StoredNames) -> list[str]:
    return [*stored.paths, *(stored.gallery_paths or ())]


def _join_labels(embeddings: SplitEmbeddings) -> np.ndarray:
    parts = [embeddings.query_labels]
    if embeddings.gallery_labels is not None:
        parts.append(embeddings.gallery_labels)
    return np.asarray(torch.cat(parts).cpu())


def score_each(scores: QueryScores, metric: str) -> np.ndarray:
    """Returns a metric of each query, 0–1; NaN for a query without a relevant item."""
    if metric.startswith(RECALL):
        values = scores.first_rank <= int(metric.removeprefix(RECALL))
    elif metric == RECIPROCAL_RANK:
        is_listed = scores.first_rank <= scores.relevant
        values = is_listed / np.maximum(scores.first_rank, 1)
    else:
        values = getattr(scores, metric)
    return np.where(scores.has_match, values, np.nan)


class PairedScore(NamedTuple):
    """A metric of two networks on the same queries.

    Attributes:
        first, second: their means, 0–1.
        difference: second − first, with its interval over classes.
        won, lost, tied: numbers of queries whose score by the second network is higher, lower, and
            equal.
    """

    first: float
    second: float
    difference: ClusteredMean
    won: int
    lost: int
    tied: int


@dataclass(frozen=True)
class PairedQueries:
    """Two networks on the same queries; `pair_queries` makes it.

    Attributes:
        first, second: of the two networks.
        to_second: position in `second` of each image of `first`.
    """

    first: RankedQueries
    second: RankedQueries
    to_second: np.ndarray

    @cached_property
    def to_first(self) -> np.ndarray:
        """Position in `first` of each image of `second`."""
        return np.argsort(self.to_second)

    @cached_property
    def scored(self) -> np.ndarray:
        """Queries, as rows of `first`, that have a relevant item."""
        return np.flatnonzero(self.first.relevant > 0)

    @property
    def classes(self) -> np.ndarray:
        """The class of each query of `scored`."""
        return self.first.labels[self.scored]

    def values(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the scores of the queries of `scored` by both networks."""
        rows = self.scored
        return self.first.values[metric][rows], self.second.values[metric][self.to_second[rows]]

    def differences(self, metric: str) -> np.ndarray:
        """Returns second − first for the queries of `scored`."""
        first, second = self.values(metric)
        return second - first

    def summarize(self, metric: str) -> PairedScore:
        """Returns the means, their difference, and the numbers of queries won, lost and tied."""
        first, second = self.values(metric)
        return PairedScore(
            float(first.mean()),
            float(second.mean()),
            clustered_mean(second - first, self.classes),
            int((second > first).sum()),
            int((second < first).sum()),
            int((second == first).sum()),
        )

    def rank_differences(self, metric: str) -> np.ndarray:
        """Returns the queries, as rows of `first`, that differ, the largest differences first.

        Of equal differences, the first name counts.
        """
        differences = self.differences(metric)
        names = np.array(self.first.names)[self.scored]
        order = np.lexsort((names, -np.abs(differences)))
        return self.scored[order[differences[order] != 0]]


def pair_queries(first: RankedQueries, second: RankedQueries) -> PairedQueries:
    """Returns two networks on the same queries, which may stand in another order.

    Images are the same if their paths are, or their paths below the deepest folder that contains
    them all: the data may stand elsewhere.

    Raises:
        UserError: images are missing on one side, have other classes there, or are named twice.
    """
    keys, others = _keys(first, second)
    if keys == others:
        to_second = np.arange(len(keys))
    else:
        _check_same_images(first, second, keys, others)
        positions = {name: position for position, name in enumerate(others)}
        to_second = np.array([positions[name] for name in keys])
    _check_same_classes(first, second, to_second)
    _check_same_numbers(first, second, to_second)
    return PairedQueries(first, second, to_second)


def _keys(first: RankedQueries, second: RankedQueries) -> tuple[list[tuple], list[tuple]]:
    """Returns keys of the images, equal for the same image: whether it is a query, and its path."""
    if set(first.names) == set(second.names):
        return _with_roles(first, first.names), _with_roles(second, second.names)
    return _with_roles(first, _relative(first.names)), _with_roles(second, _relative(second.names))


def _with_roles(ranked: RankedQueries, names: Sequence[str]) -> list[tuple]:
    queries = len(ranked.relevant)
    return [(position < queries, name) for position, name in enumerate(names)]


def _relative(names: Sequence[str]) -> list[str]:
    """Returns paths below the deepest folder that contains all; others as they are."""
    try:
        folder = os.path.commonpath([os.path.dirname(name) for name in names])
    except ValueError:  # absolute and relative ones
        return list(names)
    return [os.path.relpath(name, folder) for name in names] if folder else list(names)


def _check_same_images(
    first: RankedQueries, second: RankedQueries, keys: list[tuple], others: list[tuple]
) -> None:
    """Raises UserError unless both name the same images, each once."""
    for ranked, images, known in ((first, keys, set(others)), (second, others, set(keys))):
        title = f"{first.title} and {second.title}"
        lacking = [name for name, key in zip(ranked.names, images, strict=True) if key not in known]
        if lacking:
            raise UserError(
                f"compare: {title} are not of the same test images: {len(lacking)} of "
                f"{len(images)} of {ranked.title} are missing from the other, such as {lacking[0]}"
            )
        if len(set(images)) < len(images):
            raise UserError(
                f"compare: {title} are in another order, and an image of {ranked.title} is named "
                f"twice; give each its path once"
            )


def _check_same_numbers(first: RankedQueries, second: RankedQueries, to_second: np.ndarray) -> None:
    """Raises UserError unless each query has the same number of items to retrieve in both."""
    differs = first.relevant != second.relevant[to_second[: len(first.relevant)]]
    if differs.any():
        name = first.names[int(np.flatnonzero(differs)[0])]
        raise UserError(
            f"compare: for {name} the galleries of {first.title} and {second.title} hold different "
            f"numbers of images of its class; both need the same classes and self_index"
        )


def _check_same_classes(first: RankedQueries, second: RankedQueries, to_second: np.ndarray) -> None:
    """Raises UserError unless images of one class are of one class in both, whatever its name."""
    pairs = np.stack([first.labels, second.labels[to_second]], axis=1)
    for column, ranked, other in ((0, first, second), (1, second, first)):
        known = np.unique(pairs, axis=0)
        classes, counts = np.unique(known[:, column], return_counts=True)
        if (counts > 1).any():
            label = classes[counts > 1][0]
            image = int(np.flatnonzero(pairs[:, column] == label)[0])
            position = image if ranked is first else int(to_second[image])
            raise UserError(
                f"compare: images of the class {ranked.class_name(position)} of {ranked.title} are "
                f"of several classes in {other.title}; both need the same classes"
            )
