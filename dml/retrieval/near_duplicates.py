"""Near-duplicates in a file of embeddings: pairs, their groups, and the distance that tells them.

Shapes: N rows, D dimensions, S sampled rows, k neighbors of each.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from dml.core.counts import count_of, verb_for
from dml.core.errors import UserError
from dml.core.plain_text import show_line
from dml.core.text_columns import plain_text_columns
from dml.retrieval.embedding_file import ImageEmbeddings, note_gallery, open_embeddings
from dml.retrieval.exact.near_pairs import NearPairs, find_largest, near_pairs, read_rows
from dml.retrieval.exact.order import squared_distances
from dml.retrieval.file_index import AUTOMATIC
from dml.retrieval.indexed_pairs import approximate_pairs

SAMPLED_ROWS, SAMPLED_PAIRS = 20_000, 4_000_000_000  # that say what a near distance is
NEIGHBORS = 4  # of each
ROWS = 2048  # read at once
WINDOW = 1.25  # factor around a distance, within which few neighbors may lie
SHARE = 0.5  # of the rows around a smaller distance: at most so many have a neighbor in the window
LEAST_ROWS = 10  # around a smaller distance: fewer may be chance
DEVIATIONS = 4.0  # by which the fall must exceed chance
STEPS = 400  # distances that are tried
ROUNDING = 1e-5  # of the typical length: equal images, embedded in other batches
HALF = 0.5  # of the rows: with more of them below, classes may be what is told apart
LARGEST_GROUP = 4096  # members whose largest distance is computed exactly
CHAIN = 2.0  # distances: a group that is wider joins images that are not near-duplicates
TRAINING = "train"
TRIED_PAIRS = 10_000  # the nearest, of which both paths may be one file


class NearestPair(NamedTuple):
    """The nearest two images whose embeddings are not equal.

    Attributes:
        row, other_row: of the file.
        distance: Euclidean.
    """

    row: int
    other_row: int
    distance: float


class Suggestion(NamedTuple):
    """A largest distance of near-duplicates, and what it rests on.

    Attributes:
        distance: Euclidean.
        is_separated: whether the file's distances show copies apart from other neighbors; if not,
            `distance` is that of equal embeddings, up to rounding.
        reason: a sentence.
        nearest: without a separation, the nearest pair of the sampled rows with others; None: all
            embeddings are equal.
    """

    distance: float
    is_separated: bool
    reason: str
    nearest: NearestPair | None = None


@dataclass(frozen=True)
class NearDuplicates:
    """Near-duplicates of a file.

    Attributes:
        pairs: a row for each pair: group (from 1), distance, row, other_row, path, other_path, and
            if they are known label, other_label, split, other_split; `across`: `splits` for a pair
            of training and other images, `classes` for one of two classes, else empty. Pairs
            across splits come first, then those across classes, each by distance.
        groups: a row for each group: group, images, diameter (the largest distance of two members,
            at least it where `is_exact` is False), pairs, across.
        count: pairs within the distance; only the nearest 1,000,000 are in `pairs`.
        max_distance: the distance.
        reason: what the distance rests on.
        recall: estimated share of the pairs that an index finds; None: all, or not known.
        nearest: a line on the nearest pair that is not listed, where the file's distances suggest
            no distance; empty: there is none.
    """

    pairs: pd.DataFrame
    groups: pd.DataFrame
    count: int
    max_distance: float
    reason: str
    recall: float | None = None
    nearest: str = ""

    def describe(self) -> list[str]:
        """Returns lines on the distance, the number of pairs, and what is not in the tables."""
        lines = [f"distance    {self.max_distance:.4g}: {self.reason}"]
        images = int(self.groups["images"].sum())
        groups = count_of(len(self.groups), "group")
        lines.append(f"pairs       {self.count:,}, of {images:,} images in {groups}")
        if self.nearest:
            lines.append(f"nearest     {self.nearest}")
        missing = self.count - len(self.pairs)
        if missing:
            lines.append(
                f"note: the nearest {len(self.pairs):,} pairs are listed, {missing:,} more "
                f"counted; a smaller --max-distance lists all of its own"
            )
        links = _find_links(self.pairs)
        if len(links):
            first = links.iloc[0]
            lines.append(
                f"note: {count_of(len(links), 'pair')} {verb_for(len(links), 'is', 'are')} one "
                f"file under two names (links), such as {show_line(first.path)} and "
                f"{show_line(first.other_path)}"
            )
        if self.recall is not None:
            lines.append(f"index       finds about {self.recall:.1%} of all pairs")
        chains = int((self.groups["diameter"] > CHAIN * self.max_distance).sum())
        if chains:
            are = verb_for(chains, "is a chain: its", "are chains: their")
            lines.append(
                f"note: {count_of(chains, 'group')} {are} diameter is above {CHAIN:g} distances, "
                f"and not all of their images are alike"
            )
        return lines


def _find_links(pairs: pd.DataFrame) -> pd.DataFrame:
    """Returns the pairs of which both paths are one file, of the nearest `TRIED_PAIRS`."""
    nearest = pairs.nsmallest(TRIED_PAIRS, "distance")
    is_one = []
    for path, other in zip(nearest.path, nearest.other_path, strict=True):
        try:
            is_one.append(os.path.samefile(path, other))
        except (OSError, ValueError):  # it is not there, or no name of a file
            is_one.append(False)
    return nearest[np.array(is_one, bool)]


@plain_text_columns()
def find_near_duplicates(
    path: str | Path, max_distance: float | None = None, index: bool | str = False
) -> NearDuplicates:
    """Returns the near-duplicates of a file: pairs of images within a distance.

    Args:
        path: the file of embeddings.
        max_distance: Euclidean; None: `suggest_distance`.
        index: pairs come from an index of faiss (see `dml.search`); False: all pairs are compared.

    Raises:
        UserError: the file cannot be read, has a single image, or holds values that are not finite,
            the distance is no number of at least 0, or faiss is not installed.
    """
    stored = open_embeddings(path)
    note_gallery(path)
    if index:
        stored.check_indexed(path)
    if len(stored.embeddings) < 2:
        raise UserError(f"embeddings: {path} has a single image; two are needed")
    if max_distance is not None and not 0 <= max_distance < float("inf"):
        raise UserError(f"max_distance: {max_distance} is not a distance of at least 0")
    reason = "as it was asked for"
    recall, nearest = None, ""
    try:
        find_largest(stored.embeddings)  # which must be finite
        if max_distance is None:
            suggestion = suggest_distance(stored.embeddings)
            max_distance, reason = suggestion.distance, suggestion.reason
            if suggestion.nearest is not None:
                nearest = _describe_nearest(suggestion.nearest, stored)
        if index:
            kind = index if isinstance(index, str) else AUTOMATIC
            pairs, recall = approximate_pairs(Path(path), stored.embeddings, max_distance, kind)
        else:
            pairs = near_pairs(stored.embeddings, max_distance)
    except ValueError as error:
        raise UserError(f"embeddings: {path}: {error}") from error
    table = _describe_pairs(pairs, stored)
    groups = _describe_groups(table, stored.embeddings)
    return NearDuplicates(table, groups, pairs.total, max_distance, reason, recall, nearest)


def _describe_nearest(pair: NearestPair, stored: ImageEmbeddings) -> str:
    """Returns a line that names a pair, its similarity, and the option that lists it."""
    rows = [pair.row, pair.other_row]
    first, second = stored.embeddings[rows].astype(np.float64)
    similarity = first @ second / (np.linalg.norm(first) * np.linalg.norm(second) or 1.0)
    names = " and ".join(show_line(path) for path in stored.paths[rows].tolist())
    return (
        f"{names}: distance {pair.distance:.4g}, cosine similarity {similarity:.4f}; "
        f"--max-distance {_round_up(pair.distance):g} lists this pair"
    )


def _round_up(distance: float) -> float:
    """Returns the next number with two significant digits that is above a distance."""
    step = 10.0 ** (np.floor(np.log10(distance)) - 1)
    return float(f"{(np.floor(distance / step) + 1) * step:.2g}")


def suggest_distance(points: np.ndarray) -> Suggestion:
    """Returns the largest distance of near-duplicates that a file's own distances show.

    Copies of an image are nearer to it than any other image is: between both, fewer rows have a
    neighbor. For each distance t, the rows are counted that have one of their four nearest from
    t/1.25 to 1.25·t. A gap is where this number is at most half of that around a smaller distance,
    which is at least ten rows, and by four standard deviations below it, and where half of all
    rows have one of the four above t. Of the range of such t that reaches the largest distances,
    the t with the fewest rows is taken; of several, the middle. Equal embeddings show nothing of
    the distance of other copies, and are left out.

    Args:
        points: N×D; up to 20,000 rows, evenly spaced, are compared with all.
    """
    rows, neighbors, distances, typical = _sample_neighbors(points)
    rounding = ROUNDING * typical
    count = len(distances)
    unequal = np.where(distances > rounding, distances, np.inf)
    apart = np.sort(unequal, axis=1)
    no_gap = Suggestion(
        rounding,
        False,
        f"no gap in the distances of {count:,} rows tells copies from other neighbors: only equal "
        f"embeddings are listed; set a distance with --max-distance",
        _nearest_pair(rows, neighbors, unequal),
    )
    nearest = np.sort(apart[:, 0])
    nearest = nearest[np.isfinite(nearest)]
    if not len(nearest):
        return no_gap
    tried = np.geomspace(nearest[0], np.max(apart[np.isfinite(apart)]), STEPS)
    below = np.searchsorted(nearest, tried, side="right")
    around = _rows_around(apart, tried)
    peak = np.maximum.accumulate(around)
    is_gap = (around <= SHARE * peak) & (peak >= LEAST_ROWS)
    is_gap &= peak - around >= DEVIATIONS * np.sqrt(peak)
    # Rows without a neighbor above it do not show what is no copy.
    is_gap &= _rows_above(apart, tried) >= HALF * count
    if not is_gap.any():
        return no_gap
    last = int(np.flatnonzero(is_gap)[-1])
    first = last
    while first > 0 and is_gap[first - 1]:
        first -= 1
    fewest = around[first : last + 1].min()
    best = first + np.flatnonzero(around[first : last + 1] == fewest)
    chosen = int(best[len(best) // 2])
    reason = (
        f"of {count:,} rows {below[chosen]:,} have a neighbor below it, and {fewest:,} one within "
        f"a factor of {WINDOW}"
    )
    if below[chosen] > HALF * count:
        reason += "; so many may be classes instead of copies: look at the picture"
    return Suggestion(float(tried[chosen]), True, reason)


def _nearest_pair(
    rows: np.ndarray, neighbors: np.ndarray, unequal: np.ndarray
) -> NearestPair | None:
    """Returns the nearest pair of sampled rows (S) with their neighbors (S×k); None: there is none.

    Args:
        rows: of the file.
        neighbors: of these, rows of the file.
        unequal: distances of the neighbors, infinite for equal embeddings.
    """
    place, rank = np.unravel_index(int(unequal.argmin()), unequal.shape)
    distance = float(unequal[place, rank])
    if not np.isfinite(distance):
        return None
    first, second = sorted((int(rows[place]), int(neighbors[place, rank])))
    return NearestPair(first, second, distance)


def _rows_around(apart: np.ndarray, tried: np.ndarray) -> np.ndarray:
    """Returns for each distance how many rows have a neighbor within a factor of `WINDOW`."""
    around = np.zeros(len(tried), np.int64)
    for number, distance in enumerate(tried):
        is_near = (apart > distance / WINDOW) & (apart < distance * WINDOW)
        around[number] = is_near.any(axis=1).sum()
    return around


def _rows_above(apart: np.ndarray, tried: np.ndarray) -> np.ndarray:
    """Returns for each distance how many rows have a neighbor above it."""
    farthest = np.where(np.isfinite(apart), apart, -np.inf).max(axis=1)
    return len(farthest) - np.searchsorted(np.sort(farthest), tried, side="right")


def _sample_neighbors(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Returns sampled rows (S), their nearest rows and the distances (S×k), and a typical length.

    Candidates come from float32 products, and their distances are computed in float64.
    """
    total = len(points)
    number = min(total, SAMPLED_ROWS, max(2, SAMPLED_PAIRS // total))
    rows = np.unique(np.linspace(0, total - 1, number).astype(np.int64))
    sample = read_rows(points, rows)
    typical = float(sample.norm(dim=1).median()) or 1.0
    center = sample.mean(dim=0)
    scale = 1 / (float((sample - center).abs().max()) or 1.0)
    queries = ((sample - center) * scale).float()
    k = min(NEIGHBORS, total - 1)
    scores = torch.full((len(rows), k + 1), -torch.inf)
    nearest = torch.zeros(len(rows), k + 1, dtype=torch.int64)
    for start in range(0, total, ROWS):
        block = ((read_rows(points, slice(start, start + ROWS)) - center) * scale).float()
        new = torch.addmm(-0.5 * block.square().sum(dim=1), queries, block.T)
        best, places = new.topk(min(k + 1, len(block)), dim=1)
        scores = torch.cat([scores, best], dim=1)
        nearest = torch.cat([nearest, places + start], dim=1)
        scores, order = scores.topk(k + 1, dim=1)
        nearest = nearest.gather(1, order)
    dtype = np.float64 if points.itemsize > 4 else np.float32
    numbers = torch.from_numpy(points.astype(dtype, copy=not points.flags.writeable))
    pairs = torch.from_numpy(rows).repeat_interleave(k + 1), nearest.reshape(-1)
    squared = squared_distances(numbers, numbers, *pairs).view(-1, k + 1).numpy()
    is_self = nearest.numpy() == rows[:, None]
    distances = np.where(is_self, -1.0, np.sqrt(squared))
    # Without the row itself, or without the nearest of equal ones.
    ranks = np.argsort(distances, axis=1, kind="stable")[:, 1:]
    neighbors = np.take_along_axis(nearest.numpy(), ranks, 1)
    return rows, neighbors, np.take_along_axis(distances, ranks, 1), typical


def _describe_pairs(pairs: NearPairs, stored: ImageEmbeddings) -> pd.DataFrame:
    """Returns the table of pairs; see `NearDuplicates`."""
    first, second = pairs.first, pairs.second
    across = np.full(len(first), "", dtype=object)
    if stored.labels is not None:
        across[stored.labels[first] != stored.labels[second]] = "classes"
    if stored.splits is not None:
        is_training = stored.splits == TRAINING
        across[is_training[first] != is_training[second]] = "splits"
    total = len(stored.paths)
    graph = coo_array((np.ones(len(first), bool), (first, second)), shape=(total, total))
    component = connected_components(graph, directed=False)[1][first]
    table = pd.DataFrame({"group": component, "distance": pairs.distances})
    table["row"], table["other_row"] = first, second
    for name, values in (("label", stored.labels), ("split", stored.splits)):
        if values is not None:
            table[name], table[f"other_{name}"] = values[first], values[second]
    table["across"] = across
    table["path"], table["other_path"] = stored.paths[first], stored.paths[second]
    rank = pd.Series(across).map({"splits": 0, "classes": 1, "": 2}).to_numpy(np.int64)
    table = table.iloc[np.lexsort((second, first, pairs.distances, rank))]
    # Groups are numbered as they come: a group counts by the first of its pairs.
    table["group"] = pd.factorize(table["group"])[0] + 1
    return table.reset_index(drop=True)


def _describe_groups(table: pd.DataFrame, points: np.ndarray) -> pd.DataFrame:
    """Returns the table of groups; see `NearDuplicates`."""
    groups = []
    for number, pairs in table.groupby("group", sort=True):
        members = np.unique(pairs[["row", "other_row"]].to_numpy())
        diameter, is_exact = _find_diameter(points, members, float(pairs["distance"].max()))
        groups.append(
            (number, len(members), diameter, is_exact, len(pairs), pairs["across"].iloc[0])
        )
    return pd.DataFrame(
        groups, columns=["group", "images", "diameter", "is_exact", "pairs", "across"]
    )


def _find_diameter(points: np.ndarray, members: np.ndarray, largest: float) -> tuple[float, bool]:
    """Returns the largest distance of two members, and whether it is exact.

    Of a large group it is the distance from the member that is farthest from the first one to the
    member farthest from there: at least half of the diameter (the triangle inequality).
    """
    if len(members) == 2:
        return largest, True
    numbers = read_rows(points, members)
    if len(members) <= LARGEST_GROUP:
        apart = torch.cdist(numbers, numbers, compute_mode="donot_use_mm_for_euclid_dist")
        return float(apart.max()), True
    far = int((numbers - numbers[0]).norm(dim=1).argmax())
    return float((numbers - numbers[far]).norm(dim=1).max()), False
