"""Runs that are killed or stopped at any moment and continued equal undisturbed ones, bit for bit.

Kills at random moments, over minutes or hours: `test_endurance.py`.
"""

import math
import multiprocessing
import os
import random
import signal
import time

import pytest
import torch
from omegaconf import OmegaConf

from dml.core.errors import RunStopped, UserError
from dml.core.exit_status import ExitStatus
from dml.methods.plain import Plain
from dml.runs.experiment import resume
from dml.runs.folder.run_folder import RunFolder
from dml.tracking import History
from dml.training.checkpoint_files import Checkpoints, read_checkpoint
from dml.training.stopping import Stopping
from dml.training.trainer import Trainer
from tests.conftest import TINY
from tests.killed_process import KILLED, die_after, die_at
from tests.system.finished_runs import JOB, only_run_folder, results_of, start
from tests.system.limited_process import run_limited, train_command

# Three epochs of seven steps; a point is passed once per step, evaluation or file.
POINTS = [
    "before_step:3",
    "after_step:10",
    "before_evaluation:3",
    "after_evaluation:1",
    "after_evaluation:3",
    "before_rename:2",
    "before_rename:9",
    "between_checkpoints:3",
]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_fault_point_and_continued(prepared, undisturbed, point, workers):
    cfg, folder = prepared(f"data.workers={workers}")
    assert die_at(point, start, cfg) == KILLED
    assert not folder.summary.exists()
    start(cfg)
    assert results_of(folder) == undisturbed


class TestKilledAtRandomMoments:
    """Also while the thread beside training writes, which a slow disk makes a third of the time."""

    @pytest.fixture(autouse=True)
    def _slow_disk(self, monkeypatch):
        sync = os.fsync

        def slow(descriptor):
            if ".pt." in os.readlink(f"/proc/self/fd/{descriptor}"):
                time.sleep(0.05)
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", slow)

    @pytest.fixture(autouse=True)
    def _every_evaluation_is_the_best(self, monkeypatch):
        """So that `best.pt` is written each time."""
        update = Stopping.update

        def forget_and_update(self, *evaluation):
            self.best_score = -math.inf
            return update(self, *evaluation)

        monkeypatch.setattr(Stopping, "update", forget_and_update)

    @pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.soak)])
    def test_nothing_is_lost(self, prepared, kills):
        options = (f"protocol.epochs={4 * kills}", "protocol.stopping.patience=null")
        options = (*options, "protocol.steps_per_epoch=3")
        cfg, calm = prepared(*options, name="calm")
        began = time.monotonic()
        start(cfg)
        interval = (time.monotonic() - began) / (4 * kills)  # of an evaluation
        cfg, folder = prepared(*options)
        moments, saved = random.Random(kills), -1
        for number in range(kills):
            last, starting = folder.job(JOB) / "last.pt", number % 4 == 3
            seconds = moments.uniform(0, interval * (10 if starting else 1.5))

            def pause(process, last=last, seconds=seconds, starting=starting):
                before = written_at(last)
                while not starting and written_at(last) == before and process.is_alive():
                    time.sleep(0.001)
                time.sleep(seconds)

            assert die_after(pause, start, cfg) == KILLED
            step = self.check_files(folder)
            assert step >= saved
            saved = step
        assert saved > 0
        start(cfg)
        assert results_of(folder) == results_of(calm)

    def check_files(self, folder):
        """Asserts that the files fit together; returns the step from which the run continues."""
        loaded = Checkpoints(folder.job(JOB), {})
        loaded._check_identity = lambda *more: None
        found = loaded.load(Trainer.RESUMABLE)
        if found is None:
            return 0
        state, note = found
        assert not note
        best_step = state["stopping"]["best_step"]
        assert best_step == 0 or read_checkpoint(loaded.best)["step"] >= best_step
        rows = History(folder.history).job_rows(0, 0)
        assert state["rows"] <= len(rows) <= state["rows"] + 1
        return state["step"]


def written_at(path):
    """Returns when a file was written, or None."""
    return path.stat().st_mtime_ns if path.exists() else None


def test_a_random_loss_continues_with_the_same_random_numbers(prepared, monkeypatch):
    from dml.losses import MeanFieldContrastiveLoss

    clean = MeanFieldContrastiveLoss.forward
    monkeypatch.setattr(
        MeanFieldContrastiveLoss,
        "forward",
        lambda self, x, y, *more: clean(self, x + 0.1 * torch.randn_like(x), y, *more),
    )
    cfg, folder = prepared("loss=mfcont", "protocol.epochs=2", name="undisturbed")
    start(cfg)
    expected = results_of(folder)
    cfg, folder = prepared("loss=mfcont", "protocol.epochs=2")
    assert die_at("before_step:12", start, cfg) == KILLED
    start(cfg)
    assert results_of(folder) == expected


class TestResumeFromTheFolder:
    """`train.py resume=<folder>`: a run killed in its third epoch continues from its own config."""

    def test_a_moved_folder_with_overwrite_in_its_config(self, restored, undisturbed, tmp_path):
        cfg, folder = restored("killed")
        cfg.overwrite = True
        folder.write_config(cfg)
        moved = RunFolder(folder.path.rename(tmp_path / "moved"))
        resume(moved.path)
        assert results_of(moved) == undisturbed
        assert not folder.path.exists()

    @pytest.mark.parametrize(
        ("option", "value"),
        [("backbone.width", 8), ("loss.delta", 0.7), ("optim.lr", 0.5), ("seed", 3)],
    )
    def test_a_changed_config_is_refused_with_the_difference(self, restored, option, value):
        _, folder = restored("killed")
        stored = OmegaConf.load(folder.config)
        OmegaConf.update(stored, option, value)
        folder.write_config(stored)
        with pytest.raises(UserError, match=rf"{option}=.* this run has {option}={value}"):
            resume(folder.path)

    def test_checkpoints_of_another_loss_are_refused(self, restored, prepared):
        _, folder = restored("killed")
        cfg, other = prepared("loss=mfcont")
        other.path.mkdir(parents=True)
        (folder.path / "checkpoints").rename(other.path / "checkpoints")
        with pytest.raises(UserError, match=r"loss\._target_=dml\.losses\.MeanFieldClassWise"):
            start(cfg)

    def test_other_options_beside_it_are_refused(self, command_line, tmp_path):
        status, _, err = command_line(f"resume={tmp_path}", "optim.lr=1")
        assert status == ExitStatus.WRONG_COMMAND
        assert "leave out optim.lr=1" in err

    def test_a_folder_without_a_run_is_refused(self, command_line, tmp_path):
        status, _, err = command_line(f"resume={tmp_path}")
        assert status == ExitStatus.WRONG_COMMAND
        assert "it has no config.yaml" in err


def test_two_processes_on_one_folder(prepared):
    cfg, folder = prepared("protocol.epochs=1")
    forked = multiprocessing.get_context("fork")
    locked = forked.Event()

    def hold():
        with folder.locked():
            locked.set()
            time.sleep(60)

    owner = forked.Process(target=hold)
    owner.start()
    try:
        assert locked.wait(30)
        with pytest.raises(UserError, match=rf"is being written by process {owner.pid} on "):
            start(cfg)
    finally:
        owner.kill()
        owner.join()
    start(cfg)  # the lock of a dead process is free
    assert folder.summary.exists()


def test_the_run_keeps_its_id_unless_it_starts_anew(restored):
    cfg, folder = restored("killed")
    first = folder.run_id()
    start(cfg)
    assert folder.run_id() == first
    cfg.overwrite = True
    cfg.max_minutes = 1e-9
    with pytest.raises(RunStopped):
        start(cfg)
    assert folder.run_id() != first


class TestStopped:
    """Runs that are asked to stop finish their step, save, and say how they ended."""

    @pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_by_a_signal(self, prepared, undisturbed, monkeypatch, number, status):
        forward, calls = Plain.forward, 0

        def interrupted(self, *arguments):
            nonlocal calls
            calls += len(arguments[-1]) > 8  # the dry run before a run has eight images
            if calls == 10:
                os.kill(os.getpid(), number)
            return forward(self, *arguments)

        cfg, folder = prepared()
        before = signal.getsignal(number)
        monkeypatch.setattr(Plain, "forward", interrupted)
        with pytest.raises(RunStopped) as stopped:
            start(cfg)
        assert stopped.value.status == status
        assert signal.getsignal(number) is before
        state = torch.load(folder.job(JOB) / "last.pt", weights_only=True)
        assert state["step"] == 10
        monkeypatch.undo()
        start(cfg)
        assert results_of(folder) == undisturbed

    def test_by_the_time_limit(self, prepared, undisturbed):
        cfg, folder = prepared("max_minutes=1e-9")
        with pytest.raises(RunStopped) as stopped:
            start(cfg)
        assert stopped.value.status == ExitStatus.TIME_LIMIT
        without_limit, same = prepared()
        assert same.path == folder.path
        start(without_limit)
        assert results_of(folder) == undisturbed

    def test_by_ctrl_c_in_a_terminal(self, tmp_path):
        """The signal reaches the loading processes too; the files that are left can be read."""
        words = (*TINY, "data.workers=2", "protocol.epochs=5000", "protocol.stopping.patience=null")

        def interrupt(group):
            if not list(tmp_path.rglob("best.pt")):
                return False
            os.killpg(group, signal.SIGINT)
            return True

        ended = run_limited(
            lambda: train_command(f"outputs={tmp_path}", *words), tmp_path, 120, interrupt
        )
        assert ended.status == ExitStatus.INTERRUPTED
        assert ended.err.strip().splitlines() == [
            "stopped by SIGINT; saved, the same command continues"
        ]
        folder = only_run_folder(tmp_path)
        lines = folder.history.read_text().splitlines()
        assert all(line.count(",") == lines[0].count(",") for line in lines)
        assert torch.load(folder.job(JOB) / "last.pt", weights_only=True)["step"] > 0
