"""Runs on the pretended device: each protocol, continued and moved runs, `dml evaluate`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dml.config.check import check
from dml.core.errors import RunStopped
from dml.runs.context import RunContext
from dml.tracking import History
from dml.training.step import TrainingStep
from tests.pretended_cuda.waits import Wait, count_waits, listed
from tests.runs.conftest import evaluated

__all__ = ["evaluated"]  # a fixture

RUN = ("loss=mfcont", "overwrite=true", "protocol.steps_per_epoch=3", "protocol.evaluate_every=1")


def assert_alike(found: Path, expected: Path) -> None:
    """The histories of the first model are those of the CPU."""
    ours, theirs = (History(folder / "history.csv").job_rows(0, 0) for folder in (found, expected))
    assert ours
    for one, other in zip(ours, theirs, strict=True):
        # neighbors at almost the same distance change places: two of 896 images
        assert one == pytest.approx(other, abs=2.5e-3)
        losses = ({key: row[key] for key in row if "loss" in key} for row in (one, other))
        assert next(losses) == pytest.approx(next(losses), rel=1e-4, abs=1e-6)


@pytest.fixture
def around_steps(monkeypatch: pytest.MonkeyPatch) -> Counter[Wait]:
    """The waits of a trainer's steps; those of the loss are in `test_steps`."""
    found: Counter[Wait] = Counter()
    step = TrainingStep.__call__

    def count_step(self: TrainingStep, *arguments: Any) -> Any:
        with count_waits() as waits:
            values = step(self, *arguments)
        for wait, count in waits.items():  # a thread saves checkpoints during the steps
            if "losses" not in wait.where and wait.what != "save":
                found[wait] += count
        return values

    monkeypatch.setattr(TrainingStep, "__call__", count_step)
    return found


def test_a_trainer_does_not_wait_at_its_steps(run_tiny, around_steps, capsys):
    options = ("speed=fast", "optim.clip_norm=1")
    summary, found = run_tiny(*RUN, "device=cuda", *options)
    assert not around_steps, listed(around_steps)
    assert summary["precision"] == "tf32"
    assert "speed: fast (precision=tf32, channels_last=true)" in capsys.readouterr().out
    found = found.rename(found.with_name("found"))
    summary, expected = run_tiny(*RUN, *options)
    assert summary["precision"] == "fp32"
    assert_alike(found, expected)


@pytest.mark.parametrize(("before", "after"), [("cuda", "cuda"), ("cpu", "cuda")])
def test_a_stopped_run_goes_on_on_any_device(run_tiny, tmp_path, before, after):
    options = ("loss=pfml", "optim=adamw", *RUN[2:])
    with pytest.raises(RunStopped):
        run_tiny(*options, f"device={before}", "max_minutes=1e-9")
    _, found = run_tiny(*options, f"device={after}")
    found = found.rename(tmp_path / "found")
    assert_alike(found, run_tiny(*options)[1])


def test_evaluate_py_scores_on_the_device(run_tiny, evaluated):
    summary, folder = run_tiny(*RUN, "device=cuda")
    of_run = evaluated(f"run={folder}", "device=cuda", "save=float32")
    stored = evaluated(f"embeddings={folder / 'embeddings.npz'}", "device=cuda")
    for name, score in of_run["metrics"].items():
        assert stored["metrics"][name] == pytest.approx(score, abs=1e-9)
    best = summary["metrics"]["map_at_r"]["mean"]
    assert of_run["metrics"]["map_at_r"] == pytest.approx(best, abs=1e-6)


def test_trials_of_a_search_are_trained_like_the_run_on_the_device_of_their_worker(composed):
    cfg = composed("speed=fast", "data=digits")
    config = check(cfg).model_copy(update={"device": "cuda:1"})
    trial = RunContext(config).with_values({"seed": 3})
    assert (trial.config.seed, str(trial.device), trial.config.precision) == (3, "cuda:1", "tf32")
