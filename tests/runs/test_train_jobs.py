import os
import re
import signal
import time
from types import SimpleNamespace
from typing import ClassVar

import pytest

from dml.config.check import check
from dml.core import deadline, locks, waits
from dml.core.errors import RunStopped, UserError
from dml.core.locks import is_locked, try_lock
from dml.runs import experiment, train_jobs
from dml.runs.context import RunContext
from dml.runs.folder.run_folder import RunFolder
from dml.tracking import History, Tracker
from dml.training.step import TrainingStep
from tests import forked
from tests.conftest import TINY
from tests.runs.small_runs import SMALL, essence
from tests.system.finished_runs import start


class RecordingTracker(Tracker):
    """A tracker that keeps its rows."""

    rows: ClassVar[list[tuple[int, int, int, float]]] = []

    def __init__(self):
        self.rows.clear()

    def log(self, metrics, step):
        assert "step" not in metrics
        self.rows.append((metrics["repeat"], metrics["fold"], step, metrics["map_at_r"]))


@pytest.mark.parametrize("kind", ["fork", pytest.param("spawn", marks=pytest.mark.soak)])
@pytest.mark.promise(
    "guides/cluster_and_several_gpus.md",
    "models are trained in parallel: the results are those of one process",
)
def test_parallel_models_equal_serial_models(run_small, capfd, monkeypatch, kind):
    """Forked processes have imported torch; a run spawns them, because CUDA cannot be forked."""
    context = forked.context(kind)
    monkeypatch.setattr("multiprocessing.get_context", lambda _: context)
    tracking = f"tracking._target_={__name__}.RecordingTracker"
    alone = run_small("loss=contrastive", tracking, name="alone")
    rows = list(RecordingTracker.rows)
    capfd.readouterr()
    both = run_small("loss=contrastive", "protocol.workers=2", tracking, name="both")
    out, log = capfd.readouterr().out, (both / "train.log").read_text()
    for fold in range(4):  # by the process in the log, by the first one on the screen
        assert out.count(f"repeat0-fold{fold}  epoch 1 of 1  loss") == 1
        assert log.count(f"repeat0-fold{fold}  epoch 1 of 1  loss") == 1
    assert essence(both) == essence(alone)
    assert sorted(RecordingTracker.rows) == rows
    assert not list(both.rglob("checkpoints/*/history.csv"))
    (both / "summary.json").unlink()  # nothing is left to train
    run_small("loss=contrastive", "protocol.workers=2", tracking, name="both")
    assert "processes, this one included" not in capfd.readouterr().out


@pytest.mark.promise(
    "guides/cluster_and_several_gpus.md",
    "the same command is started again: it takes part in the run",
)
def test_the_same_command_takes_part(run_small, composed, glyphs_root, tmp_path):
    """Two processes train one run; the first one is killed, and the second one takes its place."""
    alone = run_small("loss=contrastive", name="alone")
    places = (f"outputs={tmp_path / 'both'}", f"data.root={glyphs_root}")
    cfg = composed(*SMALL, "loss=contrastive", *places)
    keeper = spawned(slow_folds, cfg)
    folder = RunFolder.of(check(cfg))
    while not (folder.path / "run.lock").exists() or not is_locked(folder.path / "run.lock"):
        time.sleep(0.05)
    helper = spawned(start, cfg)
    while len(list(folder.path.glob("checkpoints/*/result.json"))) < 2:
        assert helper.is_alive()
        assert keeper.is_alive()
        time.sleep(0.05)
    os.kill(keeper.pid, signal.SIGKILL)
    helper.join(120)
    assert helper.exitcode == 0
    assert essence(folder.path) == essence(alone)


def test_a_model_that_another_process_has_just_finished_is_not_trained_again(
    run_small, monkeypatch, capfd
):
    """Its lock is free then, but a look at the results from before shows it as unfinished."""
    folder = run_small("loss=contrastive")
    (folder / "summary.json").unlink()
    read, looks = train_jobs.read_results, iter(["from before"])

    def look(context, folder):
        results = read(context, folder)
        return [None] * len(results) if next(looks, None) else results

    monkeypatch.setattr(train_jobs, "read_results", look)
    capfd.readouterr()
    assert run_small("loss=contrastive") == folder
    assert next(looks, None) is None
    assert (folder / "summary.json").exists()
    assert "epoch 1 of 1" not in capfd.readouterr().out


def spawned(target, cfg):
    process = forked.context().Process(target=target, args=(cfg,))
    process.start()
    return process


def slow_folds(cfg):
    """Trains so slowly that the other process gets models too."""
    train_on = TrainingStep.__call__

    def wait(*arguments):
        time.sleep(1)
        return train_on(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingStep, "__call__", wait)
        start(cfg)


@pytest.mark.promise(
    "guides/cluster_and_several_gpus.md",
    "a worker of `protocol.workers` fails: the run goes on without it",
)
def test_the_run_goes_on_without_a_worker_that_failed(run_small, monkeypatch, capfd):
    monkeypatch.setattr("multiprocessing.get_context", lambda _: forked.context())
    monkeypatch.setattr(experiment, "_take_part", fail)
    alone = run_small("loss=contrastive", name="alone")
    both = run_small("loss=contrastive", "protocol.workers=2", name="both")
    assert essence(both) == essence(alone)
    assert "error: loss: too large" in (both / "train.log").read_text()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(train_jobs, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(waits, "NOTE_SECONDS", 1.0)


def stop_at_claim(folder, config, stop):
    """Claims the last model, and is stopped: as a worker that hangs."""
    with try_lock(folder.job("repeat0-fold3") / "run.lock"):
        os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.promise(
    "guides/cluster_and_several_gpus.md",
    "a process that has claimed a model or a trial is stopped: once others have waited half a "
    "minute for it, a line names it; one of `protocol.workers` is ended after ten minutes of that, "
    "and others train its model",
)
def test_a_stopped_worker_is_named_and_replaced(run_small, impatient, monkeypatch, capfd):
    monkeypatch.setattr("multiprocessing.get_context", lambda _: forked.context())
    monkeypatch.setattr(experiment, "_take_part", stop_at_claim)
    monkeypatch.setattr(waits, "LIMIT_SECONDS", 2.0)
    alone = run_small("loss=contrastive", name="alone")
    both = run_small("loss=contrastive", "protocol.workers=2", name="both")
    assert essence(both) == essence(alone)
    err = capfd.readouterr().err
    assert re.search(r"note: process \d+ on .*repeat0-fold3/run.lock and has not answered", err)
    assert "a process of protocol.workers is ended after ten minutes" in err
    assert err.count("did not answer and was ended") == 1


def test_sigterm_ends_a_run_whose_worker_is_stopped(run_small, impatient, monkeypatch, capfd):
    monkeypatch.setattr("multiprocessing.get_context", lambda _: forked.context())
    monkeypatch.setattr(experiment, "_take_part", stop_at_claim)
    monkeypatch.setattr(deadline, "STOP_SECONDS", 4.0)
    print_note, noted = waits.print_note, []

    def terminate(text):
        print_note(text)
        noted.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(waits, "print_note", terminate)
    with pytest.raises(RunStopped):
        run_small("loss=contrastive", "protocol.workers=2")
    assert time.monotonic() - noted[0] < 10
    out = capfd.readouterr().out.replace("\n", " ")
    assert re.search(r"note: protocol.workers: process \d+ on .* did not end within \d s", out)


def fail(folder, config, stop):
    raise UserError("loss: too large")


class Steps(Tracker):
    def __init__(self):
        self.logged = []

    def log(self, metrics, step):
        self.logged.append(step)


def row(step):
    return {"repeat": 0, "fold": 0, "epoch": step / 10, "step": step, "map_at_r": 0.5}


def test_rows_of_another_process_reach_the_tracker_once(tmp_path):
    job, tracker = SimpleNamespace(key=(0, 0), repeat=0, fold=0, name="repeat0-fold0"), Steps()
    folder = SimpleNamespace(job=lambda name: tmp_path / name)
    (tmp_path / job.name).mkdir()
    history, others = (
        History(tmp_path / train_jobs.HISTORY),
        History(tmp_path / job.name / train_jobs.HISTORY),
    )
    for step in (0, 10, 1):  # a step may equal the number of an epoch
        others.append(row(step))
        train_jobs._take_rows(history, tracker, job, folder, last=False)
    assert tracker.logged == [0, 10, 1]
    assert len(history.rows) == 3


class Taken(Exception):
    pass


def test_a_model_that_is_taken_over_has_its_rows_in_one_file(composed, tmp_path, monkeypatch):
    """Else the older rows of the dead process would replace those that follow."""
    context = RunContext(check(composed(f"outputs={tmp_path}", *TINY)))
    folder = RunFolder.of(context.config)
    left = folder.job("repeat0-fold0") / train_jobs.HISTORY
    left.parent.mkdir(parents=True)
    History(left).append(row(0))

    def look(job_run, history, *more):
        assert [int(float(one["step"])) for one in history.rows] == [0]
        assert not left.exists()
        raise Taken

    monkeypatch.setattr("dml.runs.train_jobs.JobRun.run", look)
    with pytest.raises(Taken):
        list(train_jobs.train_jobs(context, folder, lambda: None, Steps()))


def test_pictures_show_the_first_model(run_tiny, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "dml.runs.job_scores.draw_test_images", lambda model, *more: drawn.append(model.job.key)
    )
    words = ("protocol=mlrc", "protocol.repeats=2", "protocol.epochs=1")
    run_tiny(*words, "protocol.steps_per_epoch=1")
    assert drawn == [(0, 0)]
