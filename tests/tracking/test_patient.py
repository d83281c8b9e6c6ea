"""A tracker whose server does not answer: a training run begins and stops without it."""

import os
import signal
import threading
import time

import pytest

from dml.config.check import check
from dml.core.errors import RunStopped
from dml.runs.folder.run_folder import RunFolder
from dml.tracking import History, RunInfo, Tracker, patient
from dml.training import trainer
from tests.conftest import TINY
from tests.system.finished_runs import start


@pytest.fixture
def silent(service, monkeypatch):
    """Lets `wandb.init` wait until the event is set."""
    answers, init = threading.Event(), service.init
    answers.init = init  # that of a later process, for which the first one does not wait

    def wait_and_init(**options):
        assert answers.wait(60)
        return init(**options)

    monkeypatch.setattr(service, "init", wait_and_init)
    yield answers
    answers.set()  # the thread ends


@pytest.fixture
def prepared(composed, tmp_path):
    cfg = composed(*TINY, "protocol.epochs=3", f"outputs={tmp_path}/outputs", "tracking=wandb")
    return cfg, RunFolder.of(check(cfg))


@pytest.mark.promise(
    "guides/trackers.md",
    "W&B does not answer at the start: training begins after 10 seconds with a note, and W&B "
    "follows when it answers",
)
def test_a_training_begins_and_wandb_follows(prepared, service, silent, monkeypatch, capsys):
    monkeypatch.setattr(patient, "PATIENCE", 0.01)
    cfg, folder = prepared
    steps = []

    def answer_after_the_second_epoch(name):
        if name == "after_step":
            steps.append(name)
            assert service.ids() == [] or len(steps) > 14
        if len(steps) == 14:
            silent.set()

    monkeypatch.setattr(trainer, "fault_point", answer_after_the_second_epoch)
    start(cfg)
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("W&B has not answered for") == 1
    name = folder.run_id()
    sent = [row["_step"] for row in service.rows(name)]
    assert sent == [row["step"] for row in History(folder.history).job_rows(0, 0)]
    assert service.summary(name)["test/map_at_r"] > 0
    assert service.exits(name) == [0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.promise(
    "guides/trackers.md",
    "a request to stop comes while W&B does not answer: the run saves and stops, and the same "
    "command sends the missing rows",
)
def test_a_signal_while_it_waits(prepared, service, silent, monkeypatch, capsys, number):
    cfg, folder = prepared
    if number == signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)  # the tests may have been started by nohup
    monkeypatch.setattr(patient, "PATIENCE", 60.0)
    init, began = service.init, []

    def tell_and_init(**options):
        began.append(time.monotonic())
        os.kill(os.getpid(), number)
        return init(**options)

    monkeypatch.setattr(service, "init", tell_and_init)
    with pytest.raises(RunStopped):
        start(cfg)
    assert time.monotonic() - began[0] < 30  # seconds; of them, waiting for W&B none
    assert "W&B has not answered; the same command" in " ".join(capsys.readouterr().out.split())
    assert not service.ids()
    monkeypatch.setattr(service, "init", silent.init)
    start(cfg)
    sent = [row["_step"] for row in service.rows(folder.run_id())]
    assert sent == [row["step"] for row in History(folder.history).job_rows(0, 0)]


def test_a_late_tracker_gets_each_value_as_it_was_at_the_call(monkeypatch, tmp_path):
    """A run goes on with its objects meanwhile."""
    monkeypatch.setattr(patient, "PATIENCE", 0.01)
    answers, received = threading.Event(), []

    class Late(Tracker):
        def start(self, run):
            assert answers.wait(60)

        def log(self, metrics, step):
            received.append((metrics["parts"], step))

        def job_done(self, result):
            received.append((result["parts"], "job"))

        def trial_done(self, trial):
            received.append((trial["parts"], "trial"))

        def conclude(self, summary, pictures):
            received.append((summary["parts"], len(pictures)))

    tracker = patient.PatientTracker(Late(), "Late", lambda line: None)
    tracker.start(RunInfo(tmp_path, "id", "name", "group", {}, [(0, 0)]))
    passed, pictures = {"parts": [0]}, []
    calls = [
        lambda: tracker.log(passed, 7),
        lambda: tracker.job_done(passed),
        lambda: tracker.trial_done(passed),
        lambda: tracker.conclude(passed, pictures),
        lambda: tracker.log(passed, 8),
    ]
    for number, call in enumerate(calls):
        passed["parts"][0] = number
        call()
        pictures.append(tmp_path)
    passed["parts"][0] = -1
    answers.set()
    tracker.finish()
    assert received == [([0], 7), ([1], "job"), ([2], "trial"), ([3], 3), ([4], 8)]
