"""The lengths of embeddings, which decide whether Euclidean distance is cosine similarity."""

from __future__ import annotations

from math import isfinite

EQUAL_LENGTHS = 0.05  # relative difference that rounding to few bits causes


def describe_lengths(shortest: float, longest: float) -> str | None:
    """Returns a note if lengths differ, so that Euclidean distance is not cosine similarity.

    Lengths that are not finite have none.
    """
    if not isfinite(longest) or longest - shortest <= EQUAL_LENGTHS * longest:
        return None
    return (
        f"lengths of embeddings are {shortest:.3g} to {longest:.3g}, and distances are Euclidean; "
        f"for cosine similarity, divide each by its length"
    )
