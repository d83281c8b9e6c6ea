from typing import ClassVar

import pytest

from dml.tracking import Tracker
from tests import forked
from tests.runs.small_runs import essence


class RecordingTracker(Tracker):
    """A tracker that keeps its rows."""

    rows: ClassVar[list[tuple[int, int, int, float]]] = []

    def __init__(self):
        self.rows.clear()

    def log(self, metrics, step):
        assert "step" not in metrics
        self.rows.append((metrics["repeat"], metrics["fold"], step, metrics["map_at_r"]))


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.soak)])
def test_parallel_models_equal_serial_models(run_small, capfd, monkeypatch, start):
    """Forked processes have imported torch; a run spawns them, because CUDA cannot be forked."""
    context = forked.context(start)
    monkeypatch.setattr("multiprocessing.get_context", lambda _: context)
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
