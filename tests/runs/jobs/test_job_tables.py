from typing import ClassVar

from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs import job_list
from dml.runs.jobs.job_tables import move_job_rows, open_job_tables
from dml.tracking import NullTracker, RunTables
from tests.runs.jobs.test_job_list import index_of


class RecordingTracker(NullTracker):
    """A tracker that keeps its rows."""

    rows: ClassVar[list[tuple[int, int, int, float]]] = []

    def __init__(self):
        self.rows.clear()

    def log(self, metrics, step):
        assert "step" not in metrics
        self.rows.append((metrics["repeat"], metrics["fold"], step, metrics["map_at_r"]))


def test_a_tracker_receives_every_row_once(tmp_path):
    folder, job = RunFolder(tmp_path), job_list.create_jobs("mlrc", 1, index_of(16))[1]
    folder.job(job.name).mkdir(parents=True)
    tables, tracker = RunTables.open(folder.path), RecordingTracker()

    def train(*steps):
        """Writes rows as a process does that continues with the existing ones."""
        job_tables = open_job_tables(folder, job)
        job_tables.adopt(tables, (job.repeat, job.fold))
        for step in steps:
            row = {"repeat": 0, "fold": 1, "epoch": 0.5, "step": step}
            job_tables.history.append({**row, "map_at_r": step / 10})
            job_tables.throughput.append({**row, "waiting_share": 0.5})

    train(0, 2)
    move_job_rows(tables, job, folder, tracker)
    assert tracker.rows == [(0, 1, 0, 0.0), (0, 1, 2, 0.2)]
    train(4)
    move_job_rows(tables, job, folder, tracker)
    move_job_rows(tables, job, folder, tracker)
    assert [step for _, _, step, _ in tracker.rows] == [0, 2, 4]
    for table in (tables.history, tables.throughput):
        assert [row["step"] for row in table.job_rows(0, 1)] == [0, 2, 4]
    assert not list(folder.job(job.name).iterdir())
