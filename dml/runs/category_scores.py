"""Scores of each category of the test images, `evaluation.by=category`: means and a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from dml.core.atomic_io import write_text
from dml.core.metric_names import MEANS_OF_CATEGORIES, OF_CATEGORIES
from dml.core.statistics import combine_scores

Scores = Mapping[str, Mapping[str, float]]  # category → its numbers
COUNTS = ("queries", "queries_without_match")
COLUMNS = ("evaluation", "repeat", "fold", "category", *COUNTS, *OF_CATEGORIES)


def means_of_categories(scores: Scores) -> dict[str, float]:
    """Returns the means over the categories that have a score: each counts once, of any size."""
    means = {}
    for mean, name in zip(MEANS_OF_CATEGORIES, OF_CATEGORIES, strict=True):
        values = [numbers[name] for numbers in scores.values() if name in numbers]
        if values:
            means[mean] = fmean(values)
    return means


def combine_categories(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns category → counts, and statistics of its scores (`combine_scores`).

    Args:
        results: of models on equal test images, with `repeat` and `categories`.
    """
    combined = {}
    for category, first in results[0]["categories"].items():
        scores = []
        for result in results:
            numbers = result["categories"][category]
            kept = {name: numbers[name] for name in OF_CATEGORIES if name in numbers}
            scores.append({"repeat": result["repeat"], "metrics": kept})
        counts = {name: first[name] for name in COUNTS}
        combined[category] = counts | combine_scores(scores)
    return combined


def write_categories(path: Path, summary: Mapping[str, Any]) -> None:
    """Writes a CSV file with a row for each model, or joined models, and category.

    Args:
        path: of the file.
        summary: of a run, with `categories` in its jobs.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_list_rows(summary["evaluation"], summary["jobs"]))
    joined = summary["concatenated"]
    if joined is not None:
        writer.writerows(_list_rows("concatenated", joined["repeats"]))
    write_text(path, text.getvalue())


def _list_rows(evaluation: str, results: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for result in results:
        for category, numbers in result["categories"].items():
            row = {"evaluation": evaluation, "category": category, **numbers}
            row |= {name: result[name] for name in ("repeat", "fold") if name in result}
            yield row
