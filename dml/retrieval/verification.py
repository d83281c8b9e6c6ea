"""Verification: errors of the decision whether two items have the same class, at a threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from dml.retrieval.inputs import ArrayLike, check_labels
from dml.retrieval.pairs import check_at_least_two, distance_tiles


class MatchErrors(NamedTuple):
    """Errors of the decision that two items match if their distance is below a threshold.

    Attributes:
        threshold: Euclidean distance of the embeddings as they were passed.
        fmr: false match rate, 0–1: the share of pairs of different classes below the threshold.
        fnmr: false non-match rate, 0–1: the share of pairs of the same class that are not.
    """

    threshold: float
    fmr: float
    fnmr: float


class MatchCurve(NamedTuple):
    """Errors at T thresholds in ascending order; see `MatchErrors`."""

    thresholds: Tensor
    fmr: Tensor
    fnmr: Tensor


def match_error_rates(
    embeddings: ArrayLike, labels: ArrayLike, rates: Sequence[float]
) -> list[float]:
    """Returns FNMR@FMR: the error on pairs of one class for given errors on all other pairs.

    It is the `fnmr` of `match_thresholds`, which has the arguments and errors.

    Returns:
        For each rate a value from 0 to 1; lower is better.
    """
    return [errors.fnmr for errors in match_thresholds(embeddings, labels, rates)]


def match_thresholds(
    embeddings: ArrayLike, labels: ArrayLike, rates: Sequence[float]
) -> list[MatchErrors]:
    """Returns the largest thresholds at which the false match rate is at most a rate, with errors.

    A pair matches if its distance is below the threshold; at the threshold it does not match. The
    largest threshold of a rate is therefore the distance of a pair of different classes, which is
    the nearest one that must not match. Squared distances are rounded to float32, and thresholds
    are found by counting their upper and then their lower 16 bits, without a list of pairs.
    The returned threshold is the least distance that is rounded to this value, so that
    `distance < threshold` decides in float64 as the count does.

    Args:
        embeddings: N×D, compared as they are.
        labels: N integers or strings.
        rates: false match rates, 0 to 1, without 1.

    Returns:
        Threshold and errors for each rate. On other embeddings, `match_errors_at` has the errors
        at the same thresholds.

    Raises:
        ValueError: invalid embeddings, labels or rates, no pair of the same class, or none of
            different classes.
    """
    _check_rates(rates)
    points, classes = _check_items(embeddings, labels)
    upper = _count_bits(points, classes)
    genuine, impostor = _check_pairs(upper.sum(dim=1))
    errors = []
    for rate in rates:
        allowed = int(Fraction(str(rate)) * impostor)  # in floats, 0.29 · 100 is below 29
        matches = torch.tensor(allowed, device=upper.device)  # of different classes
        bin_of_threshold = torch.searchsorted(upper[1].cumsum(0), matches, right=True)
        lower = _count_bits(points, classes, int(bin_of_threshold))
        matches -= upper[1, :bin_of_threshold].sum()
        threshold = torch.searchsorted(lower[1].cumsum(0), matches, right=True)
        matching = upper[:, :bin_of_threshold].sum(dim=1) + lower[:, :threshold].sum(dim=1)
        distance = _least_distance(int(bin_of_threshold), int(threshold))
        of_same, of_different = matching.tolist()
        errors.append(MatchErrors(distance, of_different / impostor, 1 - of_same / genuine))
    return errors


def match_errors_at(
    embeddings: ArrayLike, labels: ArrayLike, thresholds: Sequence[float]
) -> list[MatchErrors]:
    """Returns the errors at thresholds that were chosen on other embeddings of the same network.

    Args:
        embeddings: N×D, compared as they are.
        labels: N integers or strings.
        thresholds: distances; pairs below them match.

    Raises:
        ValueError: see `match_thresholds`, or a threshold that is negative or no number.
    """
    for threshold in thresholds:
        if not threshold >= 0:
            raise ValueError(f"thresholds: {threshold} must be a distance, 0 or more")
    points, classes = _check_items(embeddings, labels)
    limits = torch.tensor(thresholds, dtype=torch.float64, device=points.device).square()
    pairs = torch.zeros(2, dtype=torch.long, device=points.device)
    matching = torch.zeros(2, len(limits), dtype=torch.long, device=points.device)
    for rows, columns, squared in distance_tiles(points, keep_shape=True):
        listed = _listed_pairs(rows, columns, squared)
        same = classes[rows, None] == classes[columns]
        for kind, mask in enumerate((same, ~same)):
            distances = squared[listed & mask]
            pairs[kind] += len(distances)
            for column, limit in enumerate(limits):
                matching[kind, column] += (distances < limit).sum()
    genuine, impostor = _check_pairs(pairs)
    errors = []
    for threshold, of_same, of_different in zip(thresholds, *matching.tolist(), strict=True):
        errors.append(MatchErrors(threshold, of_different / impostor, 1 - of_same / genuine))
    return errors


def match_error_curve(embeddings: ArrayLike, labels: ArrayLike) -> MatchCurve:
    """Returns both errors at many thresholds, from no match to all: for a picture.

    The errors are exact at each threshold; thresholds differ by about 0.4 %, and none lies where
    there is no pair.

    Args:
        embeddings: N×D, compared as they are.
        labels: N integers or strings.

    Raises:
        ValueError: see `match_thresholds`.
    """
    points, classes = _check_items(embeddings, labels)
    upper = _count_bits(points, classes)
    genuine, impostor = _check_pairs(upper.sum(dim=1))
    occupied = upper.sum(dim=0).nonzero().flatten()
    below = upper.cumsum(dim=1)[:, occupied].cpu().double()
    thresholds = [0.0, *(_least_distance(number + 1, 0) for number in occupied.tolist())]
    start = torch.zeros(2, 1, dtype=torch.float64)
    of_same, of_different = torch.cat([start, below], dim=1)
    return MatchCurve(
        torch.tensor(thresholds, dtype=torch.float64),
        of_different / impostor,
        1 - of_same / genuine,
    )


def _check_rates(rates: Sequence[float]) -> None:
    for rate in rates:
        if not 0 <= rate < 1:
            raise ValueError(f"rates: {rate} must be at least 0 and below 1")


def _check_items(embeddings: ArrayLike, labels: ArrayLike) -> tuple[Tensor, Tensor]:
    points = check_at_least_two(embeddings)
    return points, check_labels(labels, len(points), "labels").to(points.device)


def _check_pairs(counts: Tensor) -> tuple[int, int]:
    """Returns the numbers of pairs of the same class and of different ones, which must be there."""
    genuine, impostor = counts.tolist()
    if not genuine or not impostor:
        raise ValueError("labels: there must be pairs of the same and of different classes")
    return genuine, impostor


def _least_distance(upper: int, lower: int) -> float:
    """Returns the least distance whose square is rounded to the float32 of these bits.

    It lies half a step below: the value between two neighbors of float32.
    """
    number = (upper << 16) + lower
    if number == 0:
        return 0.0
    bits = torch.tensor([number - 1, number], dtype=torch.int32)
    before, value = bits.view(torch.float32).double().tolist()
    return math.sqrt((before + value) / 2)


def _listed_pairs(rows: slice, columns: slice, squared: Tensor) -> Tensor:
    """Returns the mask of the pairs of a tile (n×c) that count: each pair of items once."""
    listed = torch.ones_like(squared, dtype=torch.bool)
    if rows == columns:
        listed.triu_(diagonal=1)
    return listed


def _count_bits(points: Tensor, classes: Tensor, upper: int | None = None) -> Tensor:
    """Returns histograms of the distances, for pairs of the same class and all others (2×65536).

    The bins are the upper 16 bits of the squared distances in float32; if `upper` is given, the
    lower 16 bits of the distances with these upper bits.
    """
    counts = torch.zeros(2, 2**16, dtype=torch.long, device=points.device)
    for rows, columns, squared in distance_tiles(points, keep_shape=True):
        bits = squared.float().view(torch.int32)  # ordered as the distances, which are not negative
        listed = _listed_pairs(rows, columns, squared)
        if upper is not None:
            listed &= bits >> 16 == upper
        kept = bits >> 16 if upper is None else bits & 0xFFFF
        same = classes[rows, None] == classes[columns]
        for count, mask in zip(counts, (same, ~same), strict=True):
            count += torch.bincount(kept[listed & mask], minlength=2**16)
    return counts
