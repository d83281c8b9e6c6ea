"""Runs as one CSV file to send, and such a file read back as run folders.

A line holds the config and the summary of one finished run: all that a report needs, without
checkpoints, pictures or images.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from omegaconf import OmegaConf

from dml.config.identity import digest
from dml.config.stored_config import read_stored_config, refuse_interpolation
from dml.core.atomic_io import write_text
from dml.core.errors import UserError, first_line
from dml.results.finished_runs import FinishedRun, find_problems
from dml.runs.folder.run_folder import RunFolder

COLUMNS = ("folder", "revision", "device", "config", "summary")
LARGEST = 10_000_000  # characters of a field; a summary of 240 models has half a million


def write_runs(runs: Sequence[FinishedRun]) -> str:
    """Returns finished runs as CSV, a line each."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for run in runs:
        cfg = read_stored_config(RunFolder(run.folder).config)
        cfg["outputs"] = "outputs"  # places of the sender's machine
        cfg["data"]["root"] = "data"
        writer.writerow(
            {
                "folder": "/".join(run.folder.parts[-3:]),
                "revision": run.summary.get("git_revision"),
                "device": run.summary.get("device"),
                "config": json.dumps(cfg),
                "summary": json.dumps(run.summary),
            }
        )
    return text.getvalue()


def unpack_runs(path: Path, outputs: Path) -> list[Path]:
    """Writes the runs of a CSV file below `outputs`, as folders that reports can read.

    Returns:
        The folders.

    Raises:
        UserError: the file is not one of `write_runs`, a score is no possible one, or a config does
            not belong to its folder: its identity is the end of the folder's name.
    """
    csv.field_size_limit(LARGEST)
    folders = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for number, line in enumerate(csv.DictReader(file), start=1):
                folders.append(_unpack(line, outputs, f"{path}, run {number}"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}") from error
    if not folders:
        raise UserError(f"{path} contains no runs; report.py writes such files as <id>_runs.csv")
    return folders


def _unpack(line: dict[str, str], outputs: Path, place: str) -> Path:
    for problem in _find_problems(line):
        raise UserError(f"{place}: {problem}")
    folder = RunFolder(outputs / line["folder"])
    write_text(folder.config, OmegaConf.to_yaml(OmegaConf.create(json.loads(line["config"]))))
    write_text(folder.summary, line["summary"])
    return folder.path


def _find_problems(line: dict[str, str]) -> Iterator[str]:
    if missing := [name for name in COLUMNS if line.get(name) is None]:
        yield f"no {', '.join(missing)}; report.py writes such files as <id>_runs.csv"
        return
    parts = PurePosixPath(line["folder"]).parts
    if len(parts) != 3 or not set(parts).isdisjoint({"..", "/"}):
        yield f"'{line['folder']}' is not <experiment>/<names>/<run>"
        return
    try:
        # a text instead of a table would be parsed as YAML
        config, summary = dict(json.loads(line["config"])), json.loads(line["summary"])
        refuse_interpolation(config)
        cfg = OmegaConf.create(config)
        found = digest(cfg)
    except Exception as error:  # the file may hold anything
        yield f"config or summary is damaged: {first_line(error)}"
        return
    yield from (f"summary: {problem}" for problem in find_problems(summary))
    if not parts[-1].endswith(f"-{found}"):
        yield f"the config has the identity {found}, its folder another: {parts[-1]}"
