"""The files of a finished model beside its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dml.core.atomic_io import read_json
from dml.core.errors import UserError

EMBEDDINGS = "test_embeddings.npz"  # of one of several models, or if they are to be kept
RESULT = "result.json"  # written last: its presence means that the job is finished

TEST_CURVE = "test_"  # start of the columns of `evaluation.test_curve` in history.csv
COLLAPSED = "collapsed"  # a metric: 1 if all embeddings of an evaluation are equal


def read_result(folder: Path) -> dict[str, Any] | None:
    """Returns the result of a finished job; None if it is not finished.

    Raises:
        UserError: the file is damaged; without it the job is scored again, not trained again.
    """
    result = read_json(folder / RESULT)
    if result is not None and not {"repeat", "fold", "validation"} <= result.keys():
        raise UserError(f"outputs: {folder / RESULT} is not the result of a model; delete it")
    return result


def remove_test_curve(metrics: dict[str, Any]) -> dict[str, Any]:
    """Returns the metrics without the scores of `evaluation.test_curve`, which select nothing."""
    return {name: value for name, value in metrics.items() if not name.startswith(TEST_CURVE)}
