"""Runs as one CSV file to send, and such a file read back.

A line holds the config and the summary of one finished run: all that a report needs, without
checkpoints, pictures or images.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import pandas as pd
from omegaconf import OmegaConf

from dml.config.identity import digest, refuse_interpolation
from dml.core.errors import UserError, first_line
from dml.runs.folder.stored_run import StoredRun

COLUMNS = ("folder", "revision", "device", "config", "summary")
LARGEST = 10_000_000  # characters of a field; a summary of 240 models has half a million
WRITER = "report.py writes such files as <id>_runs.csv"


def write_runs(runs: Iterable[StoredRun]) -> str:
    """Returns finished runs as CSV, a line each."""
    lines = []
    for run in runs:
        if (summary := run.summary) is not None:
            data = {**run.content["data"], "root": "data"}  # places of the sender's machine
            config = json.dumps({**run.content, "outputs": "outputs", "data": data})
            folder = "/".join(run.folder.parts[-3:])
            text = summary.model_dump_json(exclude_unset=True)
            lines.append((folder, summary.git_revision, summary.device, config, text))
    return pd.DataFrame(lines, columns=COLUMNS).to_csv(index=False)


def read_runs(path: Path) -> list[StoredRun]:
    """Returns the runs of a CSV file.

    Raises:
        UserError: the file is not one of `write_runs`, a score is no possible one, or a config does
            not belong to its folder: its identity is the end of the folder's name.
    """
    csv.field_size_limit(LARGEST)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            runs = list(_read_lines(csv.DictReader(file), path))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}") from error
    if not runs:
        raise UserError(f"{path} contains no runs; {WRITER}")
    return runs


def _read_lines(lines: Iterable[dict[str, str]], path: Path) -> Iterator[StoredRun]:
    for number, line in enumerate(lines, start=1):
        try:
            yield _read_line(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, run {number}: {first_line(error)}") from error


def _read_line(line: dict[str, str]) -> StoredRun:
    if missing := [name for name in COLUMNS if line.get(name) is None]:
        raise ValueError(f"no {', '.join(missing)}; {WRITER}")
    parts = PurePosixPath(line["folder"]).parts
    if len(parts) != 3 or not set(parts).isdisjoint({"..", "/"}):
        raise ValueError(f"'{line['folder']}' is not <experiment>/<names>/<run>")
    config = json.loads(line["config"])
    if not isinstance(config, dict):
        raise ValueError("config is not a table of options")
    refuse_interpolation(config)
    run = StoredRun(Path(*parts))
    run.parse(config)
    run.parse_summary(json.loads(line["summary"]))
    found = digest(OmegaConf.create(config))
    if run.id != found:
        raise ValueError(f"the config has the identity {found}, its folder another: {parts[-1]}")
    return run
