"""Event files, read back by TensorBoard's own reader."""

from __future__ import annotations

import shutil
import sys

import pytest

from dml.core.errors import UserError
from dml.runs.training_status import TrainingStatus
from dml.tracking import History
from dml.tracking.tensorboard import TensorBoardTracker


def read_events(folder):
    """The events of a folder, as TensorBoard loads them."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(str(folder), size_guidance={"images": 0, "scalars": 0})
    return events.Reload()


def curve(events, name):
    return [(event.step, event.value) for event in events.Scalars(name)]


def expected_curve(folder, column, job=(0, 0)):
    rows = History(folder / "history.csv").job_rows(*job)
    return [(row["step"], pytest.approx(row[column])) for row in rows if column in row]


@pytest.mark.pictures
def test_curves_scores_and_pictures_are_read_back(run_tiny):
    pytest.importorskip("tensorboard")
    summary, folder = run_tiny("tracking=tensorboard", "protocol.epochs=3")
    model = read_events(folder / "tensorboard" / "repeat0-fold0")
    assert curve(model, "MAP@R") == expected_curve(folder, "map_at_r")
    assert curve(model, "loss") == expected_curve(folder, "loss")
    best = summary["metrics"]["map_at_r"]["mean"]
    assert curve(model, "test/MAP@R") == [(0, pytest.approx(best))]
    combined = read_events(folder / "tensorboard" / "combined")
    assert curve(combined, "combined/MAP@R") == [(0, pytest.approx(best))]
    pictures = {path.stem for path in (folder / "figures").glob("*.png")}
    assert set(combined.Tags()["images"]) == pictures != set()


@pytest.mark.promise("guides/trackers.md", "TensorBoard is not installed: one line says so")
def test_the_missing_package_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"^tracking: tensorboard is not installed; pip install"):
        TensorBoardTracker()


def remove(folder):
    shutil.rmtree(folder)


def replace_by_file(folder):
    shutil.rmtree(folder)
    folder.write_text("of somebody else")


def replace_model(folder):
    replace_by_file(folder / "repeat0-fold0")


@pytest.mark.parametrize("harm", [remove, replace_by_file, replace_model])
@pytest.mark.promise(
    "guides/trackers.md",
    "TensorBoard's folder is removed or replaced during a training run: a note says so, and the "
    "run goes on without it",
)
def test_a_folder_that_is_gone_is_a_note(run_tiny, monkeypatch, capfd, tmp_path, harm):
    pytest.importorskip("tensorboard")
    show = TrainingStatus.show_evaluation

    def show_and_harm(self, row):
        if row["epoch"] == 2:
            harm(next(tmp_path.rglob("tensorboard")))
        show(self, row)

    monkeypatch.setattr(TrainingStatus, "show_evaluation", show_and_harm)
    summary, folder = run_tiny("tracking=tensorboard", "protocol.epochs=3")
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    assert " ".join(out.split()).count("the run continues without it") == 1
    assert (folder / "summary.json").exists()
    assert len(summary["jobs"]) == 1
