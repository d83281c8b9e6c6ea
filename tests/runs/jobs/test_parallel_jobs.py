import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import pytest

from dml.core.errors import UserError
from dml.tracking import NullTracker
from tests.runs.small_runs import SMALL, essence

ROOT = Path(__file__).resolve().parents[3]


class RecordingTracker(NullTracker):
    """A tracker that keeps its rows."""

    rows: ClassVar[list[tuple[int, int, int, float]]] = []

    def __init__(self):
        self.rows.clear()

    def log(self, metrics, step):
        assert "step" not in metrics
        self.rows.append((metrics["repeat"], metrics["fold"], step, metrics["map_at_r"]))


def test_parallel_models_equal_serial_models(run_small, capfd):
    tracking = f"tracking._target_={__name__}.RecordingTracker"
    alone = run_small("loss=contrastive", tracking, name="alone")
    rows = list(RecordingTracker.rows)
    capfd.readouterr()
    both = run_small("loss=contrastive", "protocol.workers=2", tracking, name="both")
    out, log = capfd.readouterr().out, (both / "train.log").read_text()
    for fold in range(4):  # by the processes in the log, by this one on the screen
        assert out.count(f"repeat0-fold{fold}  epoch 1 of 1  loss") == 1
        assert log.count(f"repeat0-fold{fold}  epoch 1 of 1  loss") == 1
    assert essence(both) == essence(alone)
    assert sorted(set(RecordingTracker.rows)) == rows  # live rows may come again
    assert len(set(rows)) == len(rows) > 0
    logs = sorted(path.name for path in (both / "logs").iterdir())
    assert logs == [f"repeat0-fold{fold}.log" for fold in range(4)]
    assert "epoch 1" in (both / "logs" / "repeat0-fold2.log").read_text()


@pytest.mark.soak
def test_stopped_in_parallel_and_continued_serially(run_small, tmp_path, glyphs_root):
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


def test_the_failure_of_a_process_is_reported(run_small, tmp_path):
    with pytest.raises(UserError, match="data"):
        run_small(
            "loss=contrastive",
            "data.images_per_class=3",
            "data.sampler=balanced",
            "data.batch_size=300",
            "protocol.workers=2",
        )
