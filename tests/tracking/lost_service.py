"""A process whose W&B service is killed; without torch, since it starts from nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from dml.tracking import History, JobTracker, RunInfo, track_run
from dml.tracking.weights_and_biases import WandbTracker


def lose_the_service(folder: Path, said: Path) -> None:
    """Logs on after wandb's own process was killed, and starts another run after that."""
    with open(said, "w") as file:
        history = History(folder / "history.csv")
        for run_id in ("first", "second"):
            tracker = WandbTracker(project="p", mode="offline")
            info = RunInfo(
                folder, run_id, "n", "g", {}, [(0, 0)], notify=lambda line: print(line, file=file)
            )
            history.rewind((0, 0), 0)
            rows = JobTracker(history, tracker, 0, 0, lambda metrics: None)
            with track_run(tracker, info):
                rows.log({"epoch": 0.0}, 0)
                if run_id == "first":
                    (service,) = [pid for pid in children() if "wandb-core" in command_of(pid)]
                    os.kill(service, signal.SIGKILL)
                    time.sleep(0.5)
                rows.log({"epoch": 1.0}, 5)


def children() -> list[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
