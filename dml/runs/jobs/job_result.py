"""What a finished model leaves beside its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dml.core.atomic_io import read_json
from dml.core.errors import UserError

EMBEDDINGS = "test_embeddings.npz"  # beside the checkpoints of a model, if it is one of several

COLLAPSED = "collapsed"  # among the metrics of an evaluation that ties alone decided
RESULT = "result.json"  # written last: the job is finished


def read_result(folder: Path) -> dict[str, Any] | None:
    """What an earlier process found, if it finished the job of this folder.

    Raises:
        UserError: the file is damaged; without it the job is scored again, not trained again.
    """
    result = read_json(folder / RESULT)
    if result is not None and not {"repeat", "fold", "validation"} <= result.keys():
        raise UserError(f"outputs: {folder / RESULT} is no result of a model; delete it")
    return result
