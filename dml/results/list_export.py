"""Lists of runs as JSON and CSV, with all values and no formatting."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from typing import Any, TextIO

from dml.results.option_texts import differing_options
from dml.results.run_list import GROUPS, ListedRun

LABELS = ("name", "note", "experiment", *GROUPS)


def to_record(run: ListedRun) -> dict[str, Any]:
    """Returns a run as plain values: scores 0–1, age in seconds, size in bytes."""
    return {
        "id": run.id,
        "state": str(run.state),
        **{label: run.labels.get(label) for label in LABELS},
        "seed": run.seed,
        "selected_by": run.selected_by or None,
        "score": run.score,
        "epoch": run.epoch,
        "epochs": run.epochs,
        "scores": dict(run.scores),
        "untrained": dict(run.untrained),
        "age_seconds": round(run.age, 1),
        "size_bytes": run.size,
        "folder": str(run.folder),
        "problem": run.problem or None,
        "options": dict(run.options),
    }


def write_json_list(runs: Sequence[ListedRun], out: TextIO) -> None:
    """Writes a list of objects."""
    json.dump([to_record(run) for run in runs], out, indent=2, ensure_ascii=False, default=str)
    out.write("\n")


def write_csv_list(runs: Sequence[ListedRun], out: TextIO) -> None:
    """Writes a line per run; of the options, those in which the runs differ."""
    names = differing_options([run.options for run in runs if run.options])
    rows = []
    for run in runs:
        record = to_record(run)
        options, scores = record.pop("options"), record.pop("scores")
        del record["untrained"]
        differing = {name: options.get(name) for name in names if name not in record}
        rows.append({**record, **scores, **differing})
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
