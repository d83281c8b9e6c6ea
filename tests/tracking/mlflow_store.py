"""Databases and servers of MLflow on this machine, and what they hold."""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from dml.tracking import History


class Store:
    """What a database or server holds, read by MLflow's own client.

    Args:
        uri: its address.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @property
    def client(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self.uri)

    def runs(self, experiment: str = "dml-benchmark") -> list[Any]:
        """All runs of an experiment, the first one first."""
        known = self.client.get_experiment_by_name(experiment)
        if known is None:
            return []
        return list(self.client.search_runs([known.experiment_id], order_by=["start_time ASC"]))

    def parts(self) -> dict[str, Any]:
        """Part of a run → its run of MLflow, where there is a single run."""
        runs = self.runs()
        parts = {run.data.tags["dml.part"]: run for run in runs}
        assert len(parts) == len(runs)
        return parts

    def curve(self, run: Any, metric: str) -> list[tuple[int, float]]:
        """All points (step, value) of a metric, in their order."""
        points = self.client.get_metric_history(run.info.run_id, metric)
        return [(point.step, point.value) for point in points]

    def files(self, run: Any, folder: str | None = None) -> set[str]:
        return {file.path for file in self.client.list_artifacts(run.info.run_id, folder)}


def check_curves(store: Store, run: Any, folder: Path, job: tuple[int, int] = (0, 0)) -> None:
    """Every row of `history.csv` is in MLflow once, with every value."""
    rows = History(folder / "history.csv").job_rows(*job)
    columns = {name for row in rows for name in row} - {"repeat", "fold", "step"}
    assert len(rows) > 1
    assert {"epoch", "map_at_r", "loss"} <= columns
    for column in columns:
        expected = [(int(row["step"]), row[column]) for row in rows if column in row]
        assert sorted(store.curve(run, column)) == expected, column


class Server:
    """A server of MLflow in a forked process, which keeps its port while it is away.

    Args:
        database: its file.
    """

    def __init__(self, database: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import mlflow.server.fastapi_app  # noqa: F401 - once for all processes
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
        self.uri, self.database = f"http://127.0.0.1:{self.port}", database
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=self._serve, daemon=True)
        self._process.start()
        end = time.monotonic() + 60
        while not self._answers():
            assert self._process.is_alive()
            assert time.monotonic() < end
            time.sleep(0.02)

    def stop(self) -> None:
        self._process.kill()
        self._process.join()

    def _answers(self) -> bool:
        with socket.socket() as caller:
            return caller.connect_ex(("127.0.0.1", self.port)) == 0

    def _serve(self) -> None:
        import uvicorn
        from mlflow.server.fastapi_app import app

        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
        os.environ["_MLFLOW_SERVER_FILE_STORE"] = f"sqlite:///{self.database}"
        os.environ["_MLFLOW_SERVER_ARTIFACT_ROOT"] = "mlflow-artifacts:/"
        os.environ["_MLFLOW_SERVER_ARTIFACT_DESTINATION"] = str(self.database.parent / "files")
        os.environ["_MLFLOW_SERVER_SERVE_ARTIFACTS"] = "true"
        uvicorn.run(app, host="127.0.0.1", port=self.port, log_level="critical")


def _end_with_parent(parent: int) -> None:
    """Ends the process if that of the tests was killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
