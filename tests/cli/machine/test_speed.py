"""Speeds of reading and embedding, and the time of the first row that follows from them."""

import pytest
import torch

from dml.cli.machine import speed
from dml.cli.machine.speed import FirstRow
from dml.models.embedder import Embedder
from dml.models.small_cnn import SmallCNN
from dml.results.catalog import list_cells


@pytest.fixture
def row(monkeypatch):
    """The row with a small network."""
    monkeypatch.setattr(speed, "SECONDS", 0.01)
    monkeypatch.setattr(speed, "count_cores", lambda: 4)
    row = FirstRow()
    builder, _ = row._build()
    row._embedder = Embedder(SmallCNN(width=4, input_size=32), size=4)
    assert builder.config.backbone["weights"] == "none"  # nothing is downloaded
    return row


@pytest.fixture(autouse=True)
def _build_small(monkeypatch):
    small = Embedder(SmallCNN(width=4), size=4)
    monkeypatch.setattr("dml.runs.build.Builder.embedder", lambda self: small)


def test_it_is_a_row_of_the_experiment():
    (cell,) = list_cells(speed.EXPERIMENT, speed.CHOICES)
    assert cell.options.data.name == "cub"
    assert cell.trainings == 0


def test_speeds_and_time(row, monkeypatch):
    monkeypatch.setattr(speed, "_measure", lambda work: float(work()))
    assert row.try_input().result == "8.0 images/s of 500 x 375 pixels on one of 4 cores"
    assert row.try_embedding().result == "8.0 images/s, fp32, batches of 8"
    assert (row.input_speed, row.step_speed) == (32.0, 8.0)
    # 2 · 5,924 images, of which a second reads 32 and embeds 8, one after the other
    assert row.estimate().result == "about 0:30:51 for 2 x 5,924 images"
    monkeypatch.setattr(speed, "resolve_device", lambda name: torch.device("cuda"))
    assert row.estimate().result == "about 0:24:41 for 2 x 5,924 images"


def test_measured_speeds_are_positive(row):
    assert row.try_input().works
    assert row.try_embedding().works
    assert row.input_speed > 0
    assert row.step_speed > 0


@pytest.mark.parametrize("missing", ["input_speed", "step_speed"])
def test_without_a_speed_there_is_no_estimate(row, missing):
    row.input_speed = row.step_speed = 10.0
    setattr(row, missing, None)
    outcome = row.estimate()
    assert outcome.state == "note"
    assert outcome.result.startswith("unknown")


def test_a_speed_is_images_by_seconds(monkeypatch):
    times = iter([0.0, 0.5, 1.0, 2.0])
    monkeypatch.setattr(speed.time, "perf_counter", lambda: next(times))
    assert speed._measure(lambda: 3) == pytest.approx(6 / 2.0)  # after 1.5 seconds, at 2
