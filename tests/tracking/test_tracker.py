import pytest

from dml.core.errors import RunStopped, UserError
from dml.tracking import RunInfo, Tracker, track_run
from dml.tracking.tracker import GuardedTracker


class Recorder(Tracker):
    """Remembers its calls."""

    def __init__(self):
        self.calls = []

    def start(self, run):
        self.calls.append(run.name)

    def finish(self, status=0):
        self.calls.append(status)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UserError("x"), 1),
        (ZeroDivisionError(), 1),
        (RunStopped("x", 75), 75),
        (KeyboardInterrupt(), 1),
    ],
)
def test_a_failed_run_is_finished_with_its_status(tmp_path, error, status):
    tracker, info = Recorder(), RunInfo(tmp_path, "abc", "name", "group", {}, [(0, 0)])
    with pytest.raises(type(error)), track_run(tracker, info):
        raise error
    assert tracker.calls == ["name", status]


CALLS = {
    "start": lambda tracker, info: tracker.start(info),
    "log": lambda tracker, info: tracker.log({"repeat": 0, "fold": 0}, 1),
    "job_done": lambda tracker, info: tracker.job_done({}),
    "trial_done": lambda tracker, info: tracker.trial_done({}),
    "conclude": lambda tracker, info: tracker.conclude({}, []),
    "finish": lambda tracker, info: tracker.finish(0),
}


@pytest.mark.parametrize("broken", CALLS)
@pytest.mark.parametrize(
    "error", [OSError("disk full"), UserError("no space"), AssertionError(), SystemExit(4)]
)
@pytest.mark.promise(
    "guides/trackers.md",
    "a tracker raises an exception: a note says so, and the run goes on without it",
)
def test_a_failing_tracker_is_a_note(tmp_path, broken, error):
    calls, notes = [], []

    class Broken(Tracker):
        def __getattribute__(self, name):
            def call(*arguments):
                calls.append(name)
                if name == broken:
                    raise error

            return call if name in CALLS else super().__getattribute__(name)

    tracker = GuardedTracker(Broken(), notes.append)
    info = RunInfo(tmp_path, "abc", "name", "group", {}, [(0, 0)])
    for call in CALLS.values():
        call(tracker, info)
    assert calls == [*CALLS][: [*CALLS].index(broken) + 1]  # nothing more is passed to it
    (note,) = notes
    assert "Broken failed" in note


def test_a_guarded_tracker_passes_everything(tmp_path):
    recorder = Recorder()
    tracker, info = GuardedTracker(recorder, print), RunInfo(tmp_path, "abc", "n", "g", {}, [])
    with track_run(tracker, info):
        pass
    assert recorder.calls == ["n", 0]
