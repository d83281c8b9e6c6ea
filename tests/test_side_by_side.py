import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import pytest

from dml.core.errors import UserError
from dml.runs import protocols
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.job_tables import move_job_rows, open_job_tables
from dml.tracking import NullTracker, RunTables
from tests.search.small import SMALL, essence
from tests.test_protocols import index_of

ROOT = Path(__file__).resolve().parent.parent


class Told(NullTracker):
    """A tracker that keeps what it is told."""

    rows: ClassVar[list[tuple[int, int, int, float]]] = []

    def __init__(self):
        self.rows.clear()

    def log(self, metrics, step):
        assert "step" not in metrics
        self.rows.append((metrics["repeat"], metrics["fold"], step, metrics["map_at_r"]))


def test_models_side_by_side_equal_models_in_turn(run_small):
    tracking = f"tracking._target_={__name__}.Told"
    alone = run_small("loss=contrastive", tracking, name="alone")
    told = list(Told.rows)
    both = run_small("loss=contrastive", "protocol.workers=2", tracking, name="both")
    assert essence(both) == essence(alone)
    assert sorted(set(Told.rows)) == told  # live rows may come again
    assert len(set(told)) == len(told) > 0
    logs = sorted(path.name for path in (both / "logs").iterdir())
    assert logs == [f"repeat0-fold{fold}.log" for fold in range(4)]
    assert "epoch 1" in (both / "logs" / "repeat0-fold2.log").read_text()


def test_stopped_side_by_side_and_continued_in_turn(run_small, tmp_path, glyphs_root):
    alone = run_small("loss=contrastive", "protocol.epochs=8", name="alone")
    command = [sys.executable, str(ROOT / "train.py"), *SMALL, "loss=contrastive"]
    command += [f"outputs={tmp_path / 'both'}", f"data.root={glyphs_root}"]
    command += ["protocol.epochs=8", "protocol.workers=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "both").rglob("last.pt")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) in (143, 0)  # 0: it was done already
    both = run_small("loss=contrastive", "protocol.epochs=8", name="both")
    assert essence(both) == essence(alone)


def test_a_tracker_is_told_of_every_row_once(tmp_path):
    folder, job = RunFolder(tmp_path), protocols.create_jobs("mlrc", 1, index_of(16))[1]
    folder.job(job.name).mkdir(parents=True)
    tables, tracker = RunTables.of(folder.path), Told()

    def trained(*steps):
        """As a process does that goes on with the rows that are there."""
        own = open_job_tables(folder, job)
        own.adopt(tables, (job.repeat, job.fold))
        for step in steps:
            row = {"repeat": 0, "fold": 1, "epoch": 0.5, "step": step}
            own.history.append({**row, "map_at_r": step / 10})
            own.throughput.append({**row, "waiting_share": 0.5})

    trained(0, 2)
    move_job_rows(tables, job, folder, tracker)
    assert tracker.rows == [(0, 1, 0, 0.0), (0, 1, 2, 0.2)]
    trained(4)
    move_job_rows(tables, job, folder, tracker)
    move_job_rows(tables, job, folder, tracker)
    assert [step for _, _, step, _ in tracker.rows] == [0, 2, 4]
    for table in (tables.history, tables.throughput):
        assert [row["step"] for row in table.of(0, 1)] == [0, 2, 4]
    assert not list(folder.job(job.name).iterdir())


def test_a_process_that_fails_is_told(run_small, tmp_path):
    with pytest.raises(UserError, match="data"):
        run_small(
            "loss=contrastive",
            "data.images_per_class=3",
            "data.sampler=balanced",
            "data.batch_size=300",
            "protocol.workers=2",
        )
