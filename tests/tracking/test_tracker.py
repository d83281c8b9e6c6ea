import copy

import pytest

from dml.core.errors import RunStopped, UserError
from dml.tracking import RunInfo, Tracker, track_run
from dml.tracking.tracker import GuardedTracker, flatten_scores, replace_options


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


def test_a_tracker_that_failed_in_a_search_is_tried_again_for_the_training(tmp_path):
    class BrokenSearch(Recorder):
        def trial_done(self, trial):
            raise OSError("no connection")

    recorder, notes = BrokenSearch(), []
    tracker, info = (
        GuardedTracker(recorder, notes.append),
        RunInfo(tmp_path, "abc", "n", "g", {}, []),
    )
    with track_run(tracker, info):
        tracker.trial_done({})
    assert recorder.calls == ["n"]
    with track_run(tracker, info):
        pass
    assert recorder.calls == ["n", "n", 0]
    assert len(notes) == 1


def test_options_of_a_trial_are_those_of_a_copy():
    config = {"optim": {"lr": 1, "args": {"eps": 2}}, "seed": 3}
    before = copy.deepcopy(config)
    options = {"optim.args.eps": 5, "optim.args.beta": 6, "loss.margin": 7, "seed": 8}
    changed = replace_options(config, options)
    args = {"eps": 5, "beta": 6}
    assert changed == {"optim": {"lr": 1, "args": args}, "loss": {"margin": 7}, "seed": 8}
    assert config == before


def test_scores_and_intervals_have_names_of_their_own():
    of_repeats = {"mean": 0.5, "ci95": 0.1, "std": 0.04, "repeats": 3}
    summary = {
        "metrics": {"map_at_r": of_repeats},
        "untrained": {"map_at_r": {**of_repeats, "mean": 0.2, "ci95": None}},
        "validation": {"map_at_r": 0.6},
        "concatenated": {"metrics": {"map_at_r": {**of_repeats, "mean": 0.7}}},
        "seconds": 12.5,
        "repeat": 1,
        "stand_in": True,
        "loss": "ms",
    }
    assert flatten_scores(summary, "test") == {
        "test/map_at_r": 0.5,
        "test_ci95/map_at_r": 0.1,
        "untrained/map_at_r": 0.2,
        "validation/map_at_r": 0.6,
        "concatenated/map_at_r": 0.7,
        "concatenated_ci95/map_at_r": 0.1,
        "seconds": 12.5,
    }
