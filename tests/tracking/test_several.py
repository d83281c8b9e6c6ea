"""Several trackers behind one."""

from __future__ import annotations

from dml.tracking import NullTracker, RunInfo
from dml.tracking.several import SeveralTrackers


class Recorder(NullTracker):
    def __init__(self, keeps_a_copy: bool = False, name: str = "") -> None:
        self.keeps_a_copy, self.calls = keeps_a_copy, []

    def start(self, run):
        self.calls.append("start")

    def log(self, metrics, step):
        self.calls.append((metrics, step))
        metrics.clear()  # must not change the row of the next tracker

    def job_done(self, result):
        self.calls.append(result)

    def conclude(self, summary, pictures):
        self.calls.append((summary, pictures))

    def finish(self, status=0):
        self.calls.append(status)


def test_all_trackers_get_everything(tmp_path):
    first, second = Recorder(), Recorder(keeps_a_copy=True)
    several = SeveralTrackers({"first": first, "second": second})
    assert several.keeps_a_copy
    several.start(RunInfo(tmp_path, "id", "name", "group", {}, [(0, 0)]))
    several.log({"loss": 1.0}, 5)
    several.job_done({"repeat": 0})
    several.conclude({"data": "x"}, [])
    several.finish(3)
    assert [type(call) for call in first.calls] == [str, tuple, dict, tuple, int]
    assert second.calls == ["start", ({}, 5), {"repeat": 0}, ({"data": "x"}, []), 3]


def test_trackers_are_made_from_their_configs():
    node = {"name": "x", "_target_": f"{__name__}.Recorder", "keeps_a_copy": True}
    (tracker,) = SeveralTrackers({"mine": node}).trackers
    assert isinstance(tracker, Recorder)
    assert tracker.keeps_a_copy
