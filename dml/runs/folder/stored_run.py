"""Reading of run folders in any state: config, summary, history, last error.

Reads small files only and imports neither PyTorch nor Hydra: hundreds of folders take a second.
The content of a folder is never trusted: a config must consist of plain values without `${…}` or
aliases. A folder that cannot be read is a run in the state `damaged`, with the reason.

A summary repeats the config, since JSON is read fifty times as fast as YAML.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from dml.config.identity import dataset_id, flatten, identity
from dml.config.plain_yaml import read_plain_yaml
from dml.core.errors import UserError, first_line
from dml.core.locks import find_held, is_locked
from dml.core.names import named_folder
from dml.core.option_values import has_seen_classes
from dml.core.regular_files import open_regular, read_regular
from dml.tracking import History

log = logging.getLogger(__name__)
WEIGHTS = "model.safetensors"  # of an exported network


class State(StrEnum):
    """State of a run folder."""

    FINISHED = "finished"
    RUNNING = "running"  # a process works in it: it holds a lock of the run or of a model
    SEARCHING = "searching"
    STOPPED = "stopped"  # the same command continues
    FAILED = "failed"  # its log ends with an error
    EMPTY = "empty"  # stopped before its first evaluation and its first checkpoint
    DAMAGED = "damaged"  # a file cannot be read


Scores = dict[str, float]  # 0–1; counts as they are
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # as large as tables hold


class Stored(BaseModel):
    """A model that also accepts unknown keys."""

    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True, allow_inf_nan=False)


class Result(Stored):
    """Scores of one model and its training, or of the concatenated models of a repeat."""

    repeat: Whole
    fold: Whole = 0
    metrics: Scores
    validation: Scores = {}
    selection: Scores = {}
    untrained: Scores = {}
    best_epoch: float | None = None
    best_step: Whole | None = None
    steps: Whole | None = None
    seconds: float | None = None

    @property
    def selecting(self) -> Scores:
        """The scores that selected the epoch, whatever their name (`selection_section`)."""
        return self.validation or self.selection


class Concatenated(Stored):
    """Scores of the concatenated models of each repeat."""

    repeats: Annotated[list[Result], Field(min_length=1)]


class SearchSummary(Stored):
    """What a search has found."""

    complete: Whole
    params: dict[str, Any]


class Summary(Stored):
    """The fields of `summary.json` that tables and reports read."""

    result_id: str
    stand_in: bool
    protocol: str
    evaluation: str
    selected_by: str
    embedding_size: Whole
    metrics: dict[str, dict[str, Any]]
    jobs: Annotated[list[Result], Field(min_length=1)]
    config: dict[str, Any]
    concatenated: Concatenated | None = None
    search: SearchSummary | None = None
    versions: dict[str, str] = {}
    wall_seconds: float = 0.0
    git_revision: str | None = None
    device: str | None = None
    precision: str | None = None
    images: str | None = None  # see `name_images`


class StoredConfig(Stored):
    """The fields of `config.yaml` that tables and reports read."""

    model_config = ConfigDict(extra="ignore")

    name: str | None = None
    note: str | None = None
    seed: Whole
    experiment: str = Field(alias="experiment.id")
    setting: str | None = Field(None, alias="experiment.setting")
    data_name: str = Field(alias="data.name")
    crop: str | None = Field(None, alias="data.crop")
    images: str | None = Field(None, alias="data.images")
    protocol: str = Field(alias="protocol.name")
    loss: str = Field(alias="loss.name")
    method: str = Field(alias="method.name")
    backbone: str = Field(alias="backbone.name")
    epochs: Whole = Field(alias="protocol.epochs")
    select_metric: str = Field(alias="protocol.select_metric")
    selected_on: str = Field(alias="protocol.selected_on")
    splits: str = Field("", alias="protocol.splits")

    @property
    def data(self) -> str:
        """The id of the images (`dataset_id`)."""
        return dataset_id(self.data_name, self.crop, self.images)


@dataclass
class StoredRun:
    """A run folder.

    Attributes:
        folder: its path.
        state: see `State`.
        problem: one line for `failed` and `damaged`.
        config: None where there is none, or none that can be read.
        content: all of the config, as nested dictionaries.
        summary: of a finished run, else None.
        options: those that decide the result: dotted name → value.
        images: see `name_images`; None if they are not known.
        size: bytes of all files.
        written: time of the last change of a file, in seconds since 1970.
    """

    folder: Path
    state: State = State.DAMAGED
    problem: str = ""
    config: StoredConfig | None = None
    content: dict[str, Any] = field(default_factory=dict)
    summary: Summary | None = None
    options: dict[str, Any] = field(default_factory=dict)
    images: str | None = None
    size: int = 0
    written: float = 0.0

    @property
    def has_seen_classes(self) -> bool:
        """Whether the run tests the classes of its training (`protocol=closed_set`)."""
        return self.config is not None and has_seen_classes(self.config.splits)

    @property
    def id(self) -> str:
        """The digest at the end of the folder's name."""
        return self.folder.name.rpartition("-")[2]

    @cached_property
    def history(self) -> list[dict[str, float]]:
        """The rows of `history.csv`; none if it cannot be read."""
        try:
            return History(self.folder / "history.csv").numbers()
        except UserError:
            return []

    def parse(self, config: dict[str, Any]) -> None:
        """Takes the content of `config.yaml`.

        Raises:
            ValueError: it is not of a run.
        """
        options = flatten(config)
        self.config = _validate(StoredConfig, options, "config")
        self.content = config
        self.options = {name: v for name, v in identity(options).items() if v != {}}

    def parse_summary(self, summary: Any) -> None:
        """Takes the content of `summary.json`, which marks the run as finished.

        Raises:
            ValueError: it is not of a run.
        """
        parsed = _validate(Summary, summary, "summary.json")
        self.parse(parsed.config)
        self.summary, self.state = parsed, State.FINISHED
        self.images = parsed.images


def is_run(path: Path) -> bool:
    """Returns whether a folder is the folder of a run, complete or not."""
    if os.path.exists(path / "model.safetensors"):  # by `dml.export`, with the run's config
        return False
    return os.path.exists(path / "config.yaml") or os.path.exists(path / "summary.json")


def find_runs(root: Path) -> list[Path]:
    """Returns the run folders in `root/<experiment>/<names>/<run>`, in the order of their names.

    `root` may also be one of those folders itself: the depth with the most runs counts, since other
    folders may contain a `config.yaml` too. A warning names folders that cannot be read.
    """
    for folder in find_unreadable(root):
        log.warning("note: %s cannot be read (permission denied), and is left out", folder)
    runs: list[Path] = []
    for pattern in ("*/*/*", "*/*", "*"):
        folders = sorted(filter(is_run, root.glob(pattern)))
        if len(folders) > len(runs):
            runs = folders
    if not runs and is_run(root):
        return [root]
    return runs


def find_unreadable(root: Path) -> list[Path]:
    """Returns the folders that may be or hold runs (see `find_runs`) and that cannot be read."""
    unreadable = []
    level = [root]
    for _ in ("root", "experiment", "names", "run"):
        inner: list[Path] = []
        for folder in level:
            try:
                inner += _list_folders(folder)
            except PermissionError:
                unreadable.append(folder)
        level = inner
    return sorted(unreadable)


def _list_folders(folder: Path) -> list[Path]:
    """Returns the folders in a folder; none if it was removed meanwhile.

    Raises:
        PermissionError: its names cannot be read, or nothing in it.
    """
    try:
        os.stat(folder / ".")
        with os.scandir(folder) as entries:
            return [Path(entry) for entry in entries if entry.is_dir()]
    except PermissionError:
        raise
    except (OSError, ValueError):  # no folder, or no name of one
        return []


def read_run(folder: Path) -> StoredRun:
    """Returns the run of a folder, with the state *damaged* if a file cannot be read."""
    folder = named_folder(folder)
    run = StoredRun(folder)
    try:
        run.size, run.written = _measure(folder)
        if (folder / "summary.json").exists():
            summary = _read(folder / "summary.json", lambda path: from_json(read_regular(path)))
            if isinstance(summary, dict) and "config" not in summary:  # of an earlier version
                summary["config"] = _read(folder / "config.yaml", read_config)
            run.parse_summary(summary)
        else:
            if (folder / "config.yaml").exists():
                run.parse(_read(folder / "config.yaml", read_config))
            run.state, run.problem = _find_state(folder)
        if run.images is None:  # of an earlier version, or not finished
            run.images = name_images(folder / "dataset.json")
    except (ValueError, OSError, UserError) as error:
        run.state, run.problem = State.DAMAGED, first_line(error)
    return run


def name_images(path: Path) -> str | None:
    """Returns the number of images and eight digits of their hash: `1797 (5bde5fb0)`.

    Args:
        path: of the `dataset.json` of a run; None is returned if it is missing or damaged.
    """
    try:
        dataset = from_json(read_regular(path))
    except (OSError, ValueError):
        return None
    if not isinstance(dataset, dict) or "fingerprint" not in dataset:
        return None
    known = [dataset["fingerprint"], dataset.get("content", "")]
    digits = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:8]
    return f"{dataset.get('images')} ({digits})"


def _read(path: Path, read: Callable[[Path], Any]) -> Any:
    """Returns the content of a file; raises ValueError with its name if it cannot be read."""
    try:
        return read(path)
    except PermissionError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path.name} is damaged: {first_line(error)}") from error


def read_config(path: Path) -> dict[str, Any]:
    """Returns the content of a `config.yaml`; see `read_plain_yaml`.

    Raises:
        ValueError: it cannot be read, or does not consist of plain values.
    """
    return read_plain_yaml(path)


def _validate(kind: Any, content: Any, file: str) -> Any:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(map(str, problem["loc"]))
        text = problem["msg"].removeprefix("Value error, ")
        raise ValueError(f"{file} is not of a run: {name}: {text}") from error


def _find_state(folder: Path) -> tuple[State, str]:
    """Returns the state of an unfinished run, and the error in which it ended."""
    held = find_held(folder)
    if held is not None:
        in_search = "search" in held.relative_to(folder).parts
        if in_search and not is_locked(folder / "run.lock"):
            return State.SEARCHING, ""
        return State.RUNNING, ""
    error = _read_last_error(folder / "train.log")
    if error:
        return State.FAILED, error
    if History(folder / "history.csv").rows or _has_results(folder):
        return State.STOPPED, ""
    return State.EMPTY, ""


def _has_results(folder: Path) -> bool:
    """Returns whether a folder holds a checkpoint, a result, or trials, whatever it lacks."""
    if (folder / "search/trials").exists():
        return True
    names = ("result.json", "summary.json", "best.yaml", "journal.log")
    for path in folder.rglob("*"):
        if path.name in names or path.suffix in (".pt", ".safetensors"):
            return True
    return False


def _read_last_error(log: Path) -> str:
    """Returns the error of the last start in a log; empty if there is none.

    A log is for its owner alone: of a colleague's run, whether it failed is not known.
    """
    if not log.exists():
        return ""
    try:
        with open_regular(log) as file:
            file.seek(max(0, log.stat().st_size - 8192))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except PermissionError:
        return ""
    for line in reversed(lines):
        error = line.partition("] error: ")[2]
        if error or "] command: " in line:  # the beginning of the last start
            return error
    return ""


# Files that training writes, and nothing else.
OF_TRAINING = ("config.yaml", "history.csv", "train.log", "journal.log", "summary.json")


def _measure(folder: Path) -> tuple[int, float]:
    """Returns the bytes of all files of a folder, and the time of its last training.

    That is the last change of a file that training writes, or of any file without one: an
    evaluation or a comparison makes no run newer.
    """
    size = 0
    times, of_training = [], []
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # a running process removes some
                status = os.lstat(os.path.join(parent, name))
                size += status.st_size
                if name in OF_TRAINING:
                    of_training.append(status.st_mtime)
                if not name.endswith(".lock"):
                    times.append(status.st_mtime)
    return size, max(of_training or times, default=folder.stat().st_mtime)
