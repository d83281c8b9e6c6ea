"""Reads what an offline run of W&B wrote: records of protobuf in the log format of LevelDB."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEADER = 32768, 7  # bytes; a header is checksum, length, and which part of a record it is
FULL, LAST = 1, 4


class WandbFile:
    """One `run-<id>.wandb`.

    Attributes:
        run: id, project, group, job type, tags; None where the service died before it wrote them.
        history: rows with `_step`, nested keys joined by dots.
        summary: the last value of each key.
        metrics: name or pattern → the metric of its x axis.
        exit_code: None for a run that was not closed.
    """

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self.run: Any = None
        self.history: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self.metrics: dict[str, str] = {}
        self.exit_code: int | None = None
        for record in _records(path.read_bytes()):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                self.run = record.run
                items = record.run.config.update
                self.config = {item.key: json.loads(item.value_json) for item in items}
            elif kind == "history":
                self.history.append(
                    {_key(i): json.loads(i.value_json) for i in record.history.item}
                )
            elif kind == "summary":
                items = record.summary.update
                self.summary.update({_key(item): json.loads(item.value_json) for item in items})
            elif kind == "metric":
                self.metrics[record.metric.glob_name or record.metric.name] = (
                    record.metric.step_metric
                )
            elif kind == "exit":
                self.exit_code = record.exit.exit_code


def written(folder: Path, *ids: str, seconds: float = 60) -> dict[str, WandbFile]:
    """All offline runs below a run folder, by id; none may be there twice.

    Waits for the end of these ids: the service closes a file a moment after `finish` has returned.
    """
    deadline = time.monotonic() + seconds
    while True:
        files = [WandbFile(path) for path in sorted(folder.glob("wandb/offline-run-*/*.wandb"))]
        whole = [file.run.run_id for file in files if file.exit_code is not None]
        if set(ids) <= set(whole) or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    files = [file for file in files if file.run is not None]
    found = {file.run.run_id: file for file in files}
    assert len(found) == len(files)
    return found


def _key(item: Any) -> str:
    return item.key or ".".join(item.nested_key)


def _records(data: bytes) -> Iterator[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    assert data[:4] in (b":W&B", b"")
    at, parts = HEADER, b""
    while at + HEADER <= len(data):
        room = BLOCK - at % BLOCK
        _, length, part = (
            struct.unpack("<IHB", data[at : at + HEADER]) if room >= HEADER else [0] * 3
        )
        if room < HEADER or part == 0:
            at += room
            continue
        if at + HEADER + length > len(data):  # still being written
            return
        parts += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if part in (FULL, LAST):
            record = Record()
            record.ParseFromString(parts)
            yield record
            parts = b""
