import pytest

from dml.core.errors import RunStopped, UserError
from dml.tracking import RunInfo, Tracker, track_run


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
