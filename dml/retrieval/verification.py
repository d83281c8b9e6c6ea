"""Verification: errors of the decision whether two items have the same class, at a threshold."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dml.retrieval.inputs import check_labels
from dml.retrieval.pairs import check_at_least_two, distance_tiles


def match_error_rates(embeddings: Tensor, labels: Tensor, rates: Sequence[float]) -> list[float]:
    """Returns FNMR@FMR: the error on pairs of one class for given errors on all other pairs.

    A pair matches if its distance is below a threshold. The false match rate (FMR) is the share of
    pairs of different classes that match, the false non-match rate (FNMR) the share of pairs of the
    same class that do not. The threshold is the largest one at which the FMR is at most the given
    rate. Squared distances are rounded to float32, and thresholds are found by counting their
    upper and then their lower 16 bits, without a list of pairs.

    Args:
        embeddings: N×D.
        labels: N integers.
        rates: false match rates, 0 to 1, without 1.

    Returns:
        For each rate a value from 0 to 1; lower is better.

    Raises:
        ValueError: invalid embeddings or labels, no pair of the same class, or none of different
            classes.
    """
    embeddings = check_at_least_two(embeddings)
    labels = check_labels(labels, len(embeddings), "labels").to(embeddings.device)
    upper = _count_bits(embeddings, labels)
    genuine, impostor = upper.sum(dim=1).tolist()
    if not genuine or not impostor:
        raise ValueError("labels: there must be pairs of the same and of different classes")
    errors = []
    for rate in rates:
        matches = torch.tensor(int(rate * impostor), device=upper.device)  # of different classes
        bin_of_threshold = torch.searchsorted(upper[1].cumsum(0), matches, right=True)
        lower = _count_bits(embeddings, labels, int(bin_of_threshold))
        matches -= upper[1, :bin_of_threshold].sum()
        threshold = torch.searchsorted(lower[1].cumsum(0), matches, right=True)
        matching = int(upper[0, :bin_of_threshold].sum() + lower[0, :threshold].sum())
        errors.append(1 - matching / genuine)
    return errors


def _count_bits(embeddings: Tensor, labels: Tensor, upper: int | None = None) -> Tensor:
    """Returns histograms of the distances, for pairs of the same class and all others (2×65536).

    The bins are the upper 16 bits of the squared distances in float32; if `upper` is given, the
    lower 16 bits of the distances with these upper bits.
    """
    counts = torch.zeros(2, 2**16, dtype=torch.long, device=embeddings.device)
    for rows, columns, squared in distance_tiles(embeddings, keep_shape=True):
        bits = squared.float().view(torch.int32)  # ordered as the distances, which are not negative
        listed = torch.ones_like(bits, dtype=torch.bool)
        if rows == columns:
            listed.triu_(diagonal=1)
        if upper is not None:
            listed &= bits >> 16 == upper
        kept = bits >> 16 if upper is None else bits & 0xFFFF
        same = labels[rows, None] == labels[columns]
        for count, mask in zip(counts, (same, ~same), strict=True):
            count += torch.bincount(kept[listed & mask], minlength=2**16)
    return counts
