"""TensorBoard: an event folder for every model of a run, copied from `history.csv`.

The folders are in `<run folder>/tensorboard/`: `repeat0-fold0` and so on with curves over training
steps and final scores, and `combined` with the scores and figures of the whole run. Each process
that trains a model rewrites its events from all rows of `history.csv`, so that a resumed run has no
missing or duplicate step.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dml.core.errors import UserError
from dml.core.locks import check_held
from dml.core.metric_names import metric_label
from dml.tracking.history import History
from dml.tracking.tracker import Job, RunInfo, Tracker, flatten_scores


class TensorBoardTracker(Tracker):
    """A tracker that writes event files for TensorBoard into the run folder.

    Raises:
        UserError: the package tensorboard is not installed.
    """

    keeps_a_copy = True  # events of a run that finished without TensorBoard are written later

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError(
                "tracking: tensorboard is not installed; pip install tensorboard"
            ) from error
        self._open_writer = SummaryWriter
        self._writers: dict[Job, Any] = {}

    def start(self, run: RunInfo) -> None:
        """Begins a run; files are opened at the first row."""
        self.info, self._writers = run, {}

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Writes one row; before the first one, the rows of earlier processes."""
        job = (int(metrics["repeat"]), int(metrics["fold"]))
        writer = self._open_job(job, step)
        _add_row(writer, {**metrics, "step": step})
        writer.flush()  # its thread would fail later, with a traceback, if the folder is removed

    def job_done(self, result: dict[str, Any]) -> None:
        """Writes the final scores of a model."""
        job = (result["repeat"], result["fold"])
        writer = self._open_job(job)
        _add_scores(writer, flatten_scores(result, "test"))
        writer.close()

    def conclude(self, summary: dict[str, Any], pictures: Sequence[Path]) -> None:
        """Writes the scores of the whole run and its figures."""
        writer = self._renew("combined")
        _add_scores(writer, flatten_scores(summary, "combined"))
        for path in pictures:
            with Image.open(path) as picture:
                writer.add_image(path.stem, np.asarray(picture.convert("RGB")), dataformats="HWC")
        writer.close()

    def finish(self, status: int = 0) -> None:
        """Closes the files and prints the command that shows them."""
        for writer in self._writers.values():
            writer.close()
        self.info.notify(f"TensorBoard tensorboard --logdir {self.info.folder / 'tensorboard'}")

    def _open_job(self, job: Job, step: float = math.inf) -> Any:
        """Returns the writer of a model; a new one begins with the rows before a step.

        Raises:
            UserError: its folder is gone; the writer's thread would print a traceback.
        """
        if job in self._writers:
            _check_folder(Path(self._writers[job].log_dir))
        else:
            self._writers[job] = self._renew(f"repeat{job[0]}-fold{job[1]}")
            for row in History(self.info.folder / "history.csv").job_rows(*job):
                if row["step"] < step:
                    _add_row(self._writers[job], row)
        return self._writers[job]

    def _renew(self, name: str) -> Any:
        """Returns a writer for an empty folder."""
        folder = self.info.folder / "tensorboard" / name
        check_held(folder)  # else a folder that looks like a run would be made
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return self._open_writer(str(folder), flush_secs=30)


def _check_folder(folder: Path) -> None:
    """Raises UserError if a folder of events was deleted or replaced meanwhile."""
    if not folder.is_dir():
        raise UserError(
            f"{folder} was deleted or replaced; when it can be made again, the same command "
            f"writes all rows"
        )


def _add_row(writer: Any, row: dict[str, Any]) -> None:
    for name, value in row.items():
        if name not in ("repeat", "fold", "step"):
            writer.add_scalar(metric_label(name), float(value), int(row["step"]))


def _add_scores(writer: Any, scores: dict[str, float]) -> None:
    """Adds final scores: `test/MAP@R` and so on."""
    for name, value in scores.items():
        section, _, metric = name.rpartition("/")
        writer.add_scalar(f"{section or 'run'}/{metric_label(metric)}", float(value))
