"""The page of errors: worst queries with their neighbors, hardest classes, confused classes.

One HTML file that needs no other one: thumbnails and pictures are inside.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader
from torch import Tensor

from dml.core.errors import UserError
from dml.core.plain_text import shorten, show_line
from dml.core.plotting import plt
from dml.data.thumbnails import make_thumbnail
from dml.retrieval.identification import IDENTIFIED, Identification, NearestReferences
from dml.retrieval.query_scores import PER_QUERY, QueryScores
from dml.runs.figures.drawing import BLUE, ORANGE, tidy

WORST = 200  # queries on the page
SHOWN = 6  # neighbors of each
CLASSES = 30  # rows of the tables of classes
SIDE = 96  # pixels of a thumbnail
PICTURE_BYTES = 17_000_000  # of all thumbnails on a page, whose limit is 20 MB
BINS = 48
NAME_LENGTH, CLASS_LENGTH = 40, 60  # characters of the names of an image and of a class
INK = "#24292f"
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dml",
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
}


@dataclass(frozen=True)
class ShownImages:
    """The images of queries or of a gallery.

    Attributes:
        names: of the N images, usually their paths.
        labels: N classes, 0..C−1.
        load: returns the pixels of a row, uint8 3×H×W; None: the pixels are not known.
    """

    names: Sequence[str]
    labels: np.ndarray
    load: Callable[[int], Tensor] | None = None


@dataclass(frozen=True)
class ClosedSet:
    """Classes of the queries of a closed set by its training images.

    Attributes:
        identification: of the queries.
        references: the training images.
    """

    identification: Identification
    references: ShownImages


@dataclass(frozen=True)
class Evaluation:
    """An evaluation whose errors are shown.

    Attributes:
        name: of network and data, or of the file of embeddings.
        scores: of the queries.
        queries, gallery: the images; both are the same where the queries are the gallery.
        class_names: of the classes 0..C−1; empty: they are shown by their numbers.
        closed_set: classes by training images; None: the classes of the queries are unseen.
    """

    name: str
    scores: QueryScores
    queries: ShownImages
    gallery: ShownImages
    class_names: Sequence[str] = ()
    closed_set: ClosedSet | None = None

    def class_name(self, label: int) -> str:
        """Returns the name of a class."""
        return self.class_names[label] if self.class_names else str(label)

    def short_class_name(self, label: int) -> str:
        """Returns the name of a class as the page shows it."""
        return shorten(show_line(self.class_name(label)), CLASS_LENGTH)

    def class_names_of(self, labels: np.ndarray) -> list[str]:
        """Returns the name of the class of each label."""
        return [self.class_name(label) for label in labels.tolist()]

    def _short_names(self, labels: np.ndarray) -> list[str]:
        return [self.short_class_name(label) for label in labels.tolist()]

    @property
    def nearest(self) -> np.ndarray:
        """Rows of the gallery: the nearest one of each query."""
        return self.scores.nearest[:, 0]

    def per_query(self) -> pd.DataFrame:
        """Returns a row for each query, without scores where no image is relevant.

        The columns are PER_QUERY and, of a closed set, IDENTIFIED.
        """
        scores = self.scores
        nearest = self.nearest
        correct = self.gallery.labels[nearest] == self.queries.labels
        rank = pd.array(scores.first_rank, dtype="Int64")
        rank[~scores.has_match] = pd.NA
        columns = (
            list(self.queries.names),
            self.class_names_of(self.queries.labels),
            [self.gallery.names[row] for row in nearest],
            self.class_names_of(self.gallery.labels[nearest]),
            scores.distances[:, 0],
            correct,
            scores.precision_at_1,
            scores.r_precision,
            scores.map_at_r,
            rank,
            scores.relevant,
        )
        table = dict(zip(PER_QUERY, columns, strict=True))
        return pd.DataFrame(table | self._identified_columns())

    def _identified_columns(self) -> dict[str, Any]:
        """Returns the columns IDENTIFIED of a closed set; none of unseen classes."""
        if self.closed_set is None:
            return {}
        names = self.closed_set.references.names
        by_mean, by_neighbors, right = self.closed_set.identification

        def names_of(nearest: NearestReferences) -> list[str]:
            return [names[row] if row >= 0 else "" for row in nearest.rows]

        columns = (
            self.class_names_of(by_mean.labels),
            self.class_names_of(by_neighbors.labels),
            names_of(by_neighbors),
            by_neighbors.distances,
            names_of(right),
            right.distances,
        )
        return dict(zip(IDENTIFIED, columns, strict=True))

    def hardest_classes(self) -> pd.DataFrame:
        """Returns the classes in the order of their mean MAP@R, the lowest first.

        Columns: name, queries, precision_at_1, map_at_r (means, 0–1) and confused_with, the class
        that is most often nearest to a query in place of its own; empty if none is.
        """
        queries = self._scored_queries
        groups = queries.groupby("label")
        table = groups[["precision_at_1", "map_at_r"]].mean()
        table["queries"] = groups.size()
        table["confused_with"] = ""
        for label, other in self._confusions.groupby("label")["other"].first().items():
            table.loc[label, "confused_with"] = self.short_class_name(other)
        table["name"] = self._short_names(table.index.to_numpy())
        return table.sort_values(["map_at_r", "precision_at_1"], kind="stable")

    def confused_pairs(self) -> pd.DataFrame:
        """Returns pairs of classes: queries of `name` whose nearest image is of `other_name`.

        Columns: name, other_name, count (of these queries), queries (of the class); the largest
        counts first.
        """
        pairs = self._confusions.copy()
        sizes = self._scored_queries.groupby("label").size()
        pairs["queries"] = sizes.loc[pairs["label"]].to_numpy()
        pairs["name"] = self._short_names(pairs["label"].to_numpy())
        pairs["other_name"] = self._short_names(pairs["other"].to_numpy())
        return pairs

    @cached_property
    def _scored_queries(self) -> pd.DataFrame:
        """The queries with a relevant image: class, nearest class and scores."""
        columns = {
            "label": self.queries.labels,
            "other": self.gallery.labels[self.nearest],
            "precision_at_1": self.scores.precision_at_1,
            "map_at_r": self.scores.map_at_r,
        }
        return pd.DataFrame(columns)[self.scores.has_match]

    @cached_property
    def _confusions(self) -> pd.DataFrame:
        """Class, class of the nearest image, and number of queries of each wrong pair."""
        queries = self._scored_queries
        wrong = queries[queries["label"] != queries["other"]]
        counts = wrong.groupby(["label", "other"]).size().rename("count").reset_index()
        return counts.sort_values("count", ascending=False, kind="stable")


class Card(NamedTuple):
    """An image on the page.

    Attributes:
        source: of the thumbnail, a `data:` address; empty: there is no picture.
        name, short_name: of the image.
        label, short_label: name of its class.
        rank: among the neighbors, from 1; 0 for the query.
        distance: from the query.
        is_right: whether its class is the query's.
    """

    source: str
    name: str
    short_name: str
    label: str
    short_label: str
    rank: int = 0
    distance: float = 0.0
    is_right: bool = False


class QueryRow(NamedTuple):
    """A query on the page.

    Attributes:
        query: its image.
        neighbors: the nearest images.
        right: the nearest image of its class, where it is none of these.
        map_at_r: 0–1.
        relevant: number of relevant images.
        first_rank: rank of the nearest relevant image.
    """

    query: Card
    neighbors: list[Card]
    right: Card | None
    map_at_r: float
    relevant: int
    first_rank: int


class Mistake(NamedTuple):
    """A wrongly identified query on the page.

    Attributes:
        query: its image.
        predicted: what predicts a wrong class (such as "neighbors"), and the nearest reference of
            this class.
        right: the nearest reference of the query's class; None: it has none.
    """

    query: Card
    predicted: list[tuple[str, Card]]
    right: Card | None


@dataclass
class _Thumbnails:
    """Thumbnails of a page, each made once, until they have too many bytes together.

    Attributes:
        made: address by images and row.
        size: bytes of all addresses.
        unreadable: images that could not be read.
        left_out: images that had no room.
    """

    made: dict[tuple[int, int], str] = field(default_factory=dict)
    size: int = 0
    unreadable: int = 0
    left_out: int = 0

    def source(self, images: ShownImages, row: int) -> str:
        """Returns the address of the thumbnail of an image; empty if there is none."""
        if images.load is None:
            return ""
        key = id(images), row
        if key not in self.made:
            self.made[key] = self._make(images.load, row)
        source = self.made[key]
        if self.size + len(source) > PICTURE_BYTES:
            self.left_out += 1
            return ""
        self.size += len(source)
        return source

    def _make(self, load: Callable[[int], Tensor], row: int) -> str:
        try:
            jpeg = make_thumbnail(load(row), SIDE)
        except (UserError, OSError, ValueError):  # gone, damaged, of another type
            self.unreadable += 1
            return ""
        return data_uri(jpeg, "image/jpeg")


def data_uri(content: bytes, mime: str) -> str:
    """Returns content for the `src` of an image."""
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"


def render_errors(evaluation: Evaluation, made: datetime, mark: str = "") -> str:
    """Returns the page of an evaluation.

    Args:
        evaluation: what is shown.
        made: date and time to show.
        mark: of the file (`dml.core.outputs.text_mark`).
    """
    thumbnails = _Thumbnails()
    scores = evaluation.scores
    mistakes = _describe_mistakes(evaluation, thumbnails)
    misidentified = 0
    if evaluation.closed_set is not None:
        misidentified = int(evaluation.closed_set.identification.is_wrong.sum())
    worst = scores.rank_worst()
    rows = [_describe_query(evaluation, int(row), thumbnails) for row in worst[:WORST]]
    has_match = scores.has_match
    environment = Environment(
        loader=PackageLoader("dml.runs", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_show_value,
    )
    return environment.get_template("errors.html.j2").render(
        evaluation=evaluation,
        mark=mark,
        made=f"{made:%Y-%m-%d %H:%M}",
        mistakes=mistakes,
        misidentified=misidentified,
        identified=len(scores.relevant),
        rows=rows,
        queries=len(worst),
        without_match=int((~has_match).sum()),
        wrong=int((scores.precision_at_1[has_match] == 0).sum()),
        precision_at_1=float(scores.precision_at_1[has_match].mean()),
        map_at_r=float(scores.map_at_r[has_match].mean()),
        classes=list(evaluation.hardest_classes().head(CLASSES).itertuples()),
        pairs=list(evaluation.confused_pairs().head(CLASSES).itertuples()),
        histogram=data_uri(draw_distances(scores), "image/svg+xml"),
        medians=_median_distances(scores),
        thumbnails=thumbnails,
        has_pictures=evaluation.queries.load is not None,
    )


def _describe_query(evaluation: Evaluation, row: int, thumbnails: _Thumbnails) -> QueryRow:
    scores, label = evaluation.scores, evaluation.queries.labels[row]
    query = _make_card(evaluation, evaluation.queries, row, thumbnails)

    def gallery_card(item: int, rank: int, distance: float) -> Card:
        card = _make_card(evaluation, evaluation.gallery, item, thumbnails)
        is_right = bool(evaluation.gallery.labels[item] == label)
        return card._replace(rank=rank, distance=distance, is_right=is_right)

    neighbors = []
    for rank in range(min(SHOWN, scores.nearest.shape[1])):
        item, distance = int(scores.nearest[row, rank]), float(scores.distances[row, rank])
        neighbors.append(gallery_card(item, rank + 1, distance))
    first_rank, right = int(scores.first_rank[row]), None
    if first_rank > len(neighbors):
        right = gallery_card(int(scores.right[row]), first_rank, float(scores.right_distance[row]))
    return QueryRow(
        query, neighbors, right, float(scores.map_at_r[row]), int(scores.relevant[row]), first_rank
    )


def _describe_mistakes(evaluation: Evaluation, thumbnails: _Thumbnails) -> list[Mistake]:
    """Returns the wrongly identified queries of a closed set, at most `WORST`."""
    if evaluation.closed_set is None:
        return []
    identification, references = (
        evaluation.closed_set.identification,
        evaluation.closed_set.references,
    )

    def card(nearest: NearestReferences, row: int) -> Card | None:
        reference = int(nearest.rows[row])
        if reference < 0:
            return None
        made = _make_card(evaluation, references, reference, thumbnails)
        return made._replace(rank=1, distance=float(nearest.distances[row]))

    mistakes = []
    for row in identification.rank_wrong()[:WORST].tolist():
        query = _make_card(evaluation, evaluation.queries, row, thumbnails)
        predicted = []
        for words, nearest in _wrong_predictions(identification, row):
            reference = card(nearest, row)
            if reference is not None:
                predicted.append((words, reference))
        mistakes.append(Mistake(query, predicted, card(identification.right, row)))
    return mistakes


def _wrong_predictions(
    identification: Identification, row: int
) -> list[tuple[str, NearestReferences]]:
    """Returns what predicts wrong classes for a query, each class once."""
    by_mean, by_neighbors, right = identification
    label = right.labels[row]
    if by_mean.labels[row] == by_neighbors.labels[row]:
        return [("neighbors and class mean", by_neighbors)]
    predictions = (("neighbors", by_neighbors), ("class mean", by_mean))
    return [(words, nearest) for words, nearest in predictions if nearest.labels[row] != label]


def _make_card(
    evaluation: Evaluation, images: ShownImages, row: int, thumbnails: _Thumbnails
) -> Card:
    name = show_line(images.names[row])
    label = int(images.labels[row])
    return Card(
        thumbnails.source(images, row),
        name,
        shorten(name, NAME_LENGTH),
        show_line(evaluation.class_name(label)),
        evaluation.short_class_name(label),
    )


def draw_distances(scores: QueryScores) -> bytes:
    """Returns histograms (SVG) of the distances to the nearest right and wrong item of a query."""
    right, wrong = _nearest_distances(scores)
    everything = np.concatenate([right, wrong])
    low, high = float(everything.min()), float(everything.max())
    if low == high:  # all distances are equal
        low, high = low - 0.5, high + 0.5
    bins = np.linspace(low, high, BINS + 1).tolist()
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(6.2, 3.2), layout="constrained")
        axis.hist(right, bins, color=BLUE, alpha=0.6, label="nearest image of the same class")
        axis.hist(wrong, bins, color=ORANGE, alpha=0.6, label="nearest image of another class")
        axis.set(xlabel="distance", ylabel="queries")
        axis.legend(frameon=False)
        tidy(axis)
        stream = io.BytesIO()
        figure.savefig(stream, format="svg", metadata={"Date": None})
        plt.close(figure)
    return stream.getvalue()


def _nearest_distances(scores: QueryScores) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distances to the nearest right and to the nearest wrong item, where known."""
    parts = []
    for distances in (scores.right_distance, scores.wrong_distance):
        known = distances[scores.has_match]
        parts.append(known[np.isfinite(known)])
    return parts[0], parts[1]


def _median_distances(scores: QueryScores) -> list[float]:
    """Returns the medians of the histograms; an empty one has none."""
    return [float(np.median(part)) for part in _nearest_distances(scores) if len(part)]


def _show_value(value: Any) -> Any:
    """Shows the control characters of a value of the page, unless it is HTML."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return show_line(value) if is_text else value
