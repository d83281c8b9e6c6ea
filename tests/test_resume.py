"""Runs that are killed at any moment and continued equal undisturbed ones, bit for bit."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from dml.config.check import check
from dml.config.schema import Config
from dml.core.errors import RunStopped, UserError
from dml.runs.experiment import resume, run
from dml.runs.folder.run_folder import RunFolder
from tests.conftest import TINY
from tests.dying import die_at

ROOT = Path(__file__).resolve().parent.parent
KILLED = -signal.SIGKILL
# Three epochs of seven steps; the points are passed once per step, evaluation or file.
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


@pytest.fixture
def prepared(composed, tmp_path):
    """The config and folder of a run that was not started yet."""

    def prepare(*overrides, name="outputs"):
        cfg = composed(f"outputs={tmp_path / name}", *TINY, "protocol.epochs=3", *overrides)
        return cfg, RunFolder.of(cfg, check(cfg, Config))

    return prepare


def start(cfg):
    return run(cfg, check(cfg, Config))


def essence(folder):
    """What must be equal, bit for bit: history, best weights, final scores."""
    summary = json.loads(folder.summary.read_text())
    best = (folder.job("repeat0-fold0") / "best.pt").read_bytes()
    return folder.history.read_bytes(), best, summary["metrics"], summary["best_epoch"]


@pytest.fixture(scope="module")
def undisturbed():
    return {}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_fault_point_and_continued(prepared, undisturbed, point, workers):
    if not undisturbed:  # the same for all points and numbers of workers
        cfg, folder = prepared(name="undisturbed")
        start(cfg)
        undisturbed["essence"] = essence(folder)
    cfg, folder = prepared(f"data.workers={workers}")
    assert die_at(point, start, cfg) == KILLED
    assert not folder.summary.exists()
    start(cfg)
    assert essence(folder) == undisturbed["essence"]


def test_a_random_loss_continues_with_the_same_random_numbers(prepared, monkeypatch):
    from dml.losses import MeanFieldContrastiveLoss

    clean = MeanFieldContrastiveLoss.forward
    monkeypatch.setattr(
        MeanFieldContrastiveLoss,
        "forward",
        lambda self, x, y, *more: clean(self, x + 0.1 * torch.randn_like(x), y, *more),
    )
    cfg, folder = prepared("loss=mfcont", name="undisturbed")
    start(cfg)
    expected = essence(folder)
    cfg, folder = prepared("loss=mfcont")
    assert die_at("before_step:12", start, cfg) == KILLED
    start(cfg)
    assert essence(folder) == expected


def test_resume_continues_a_moved_folder_from_its_own_config(prepared, undisturbed, tmp_path):
    cfg, folder = prepared("overwrite=true")
    assert die_at("before_step:9", start, cfg) == KILLED
    moved = RunFolder(folder.path.rename(tmp_path / "moved"))
    resume(moved.path)
    if undisturbed:
        assert essence(moved) == undisturbed["essence"]
    assert not folder.path.exists()


def test_resume_refuses_options_beside_it(monkeypatch, capfd, tmp_path):
    from dml.cli import command
    from dml.core.exit_status import ExitStatus

    monkeypatch.setattr("sys.argv", ["train.py", f"resume={tmp_path}", "optim.lr=1"])
    assert command(print, "train", resume) == ExitStatus.WRONG_COMMAND
    assert "leave out optim.lr=1" in capfd.readouterr().err
    monkeypatch.setattr("sys.argv", ["train.py", f"resume={tmp_path}"])
    assert command(print, "train", resume) == ExitStatus.WRONG_COMMAND
    assert "it has no config.yaml" in capfd.readouterr().err


class TestDamage:
    """A run killed in its third epoch, whose files were then tampered with."""

    @pytest.fixture
    def killed(self, prepared):
        cfg, folder = prepared()
        assert die_at("before_step:17", start, cfg) == KILLED
        return cfg, folder

    @pytest.mark.parametrize("damage", [b"", b"half", None])
    def test_an_unreadable_last_checkpoint(self, killed, undisturbed, damage, capsys):
        cfg, folder = killed
        last = folder.job("repeat0-fold0") / "last.pt"
        whole = last.read_bytes()
        last.write_bytes(whole[: len(whole) // 2] if damage == b"half" else b"")
        if damage is None:
            last.unlink()
        start(cfg)
        said = capsys.readouterr().out
        assert damage is None or "last.pt is not a complete checkpoint" in said.replace("\n", "")
        assert "continuing repeat0-fold0 from epoch 1" in said
        if undisturbed:
            assert essence(folder) == undisturbed["essence"]

    def test_no_readable_checkpoint(self, killed):
        cfg, folder = killed
        for name in ("last", "previous"):
            (folder.job("repeat0-fold0") / f"{name}.pt").write_bytes(b"x")
        with pytest.raises(UserError, match=r"neither last\.pt nor previous\.pt"):
            start(cfg)

    @pytest.mark.parametrize(
        ("option", "value"),
        [("backbone.width", 8), ("loss.delta", 0.7), ("optim.lr", 0.5), ("seed", 3)],
    )
    def test_a_changed_config_is_refused_with_the_difference(self, killed, option, value):
        _, folder = killed
        stored = OmegaConf.load(folder.config)
        OmegaConf.update(stored, option, value)
        folder.write_config(stored)
        with pytest.raises(UserError, match=rf"{option}=.* this run has {option}={value}"):
            resume(folder.path)

    def test_another_loss_is_refused(self, killed, prepared):
        _, folder = killed
        cfg, other = prepared("loss=mfcont")
        other.path.mkdir(parents=True)
        (folder.path / "checkpoints").rename(other.path / "checkpoints")
        with pytest.raises(UserError, match=r"loss\._target_=dml\.losses\.MeanFieldClassWise"):
            start(cfg)


def test_a_full_disk_keeps_the_checkpoint_before(prepared, monkeypatch):
    cfg, folder = prepared()
    written = Path.write_bytes
    count = 0

    def full(self, data):
        nonlocal count
        count += self.name.startswith(".last.pt")
        if count < 3:
            return written(self, data)
        written(self, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match=r"cannot save .*last\.pt: No space left on device"):
        start(cfg)
    monkeypatch.undo()
    state = torch.load(folder.job("repeat0-fold0") / "last.pt", weights_only=True)
    assert state["step"] == 7
    assert not list(folder.path.rglob("*.partial"))
    start(cfg)
    assert folder.summary.exists()


def test_a_full_disk_elsewhere_is_told_in_one_line(monkeypatch, capfd, tmp_path):
    from dml.cli import command
    from dml.core.exit_status import ExitStatus

    def job(cfg):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "history.csv")

    monkeypatch.setattr("sys.argv", ["train.py"])
    assert command(job, "train") == ExitStatus.FAILED
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "cannot write history.csv: No space left on device" in lines[0]


def test_two_processes_on_one_folder(prepared):
    cfg, folder = prepared()
    code = (
        "import sys, time\n"
        "from dml.runs.folder.run_folder import RunFolder\n"
        "with RunFolder(sys.argv[1]).locked():\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(60)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code, str(folder.path)], stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline().strip() == b"locked"
        with pytest.raises(UserError, match=rf"is being written by process {owner.pid} on "):
            start(cfg)
    finally:
        owner.kill()
        owner.wait()
    start(cfg)  # a dead owner's lock is free
    assert folder.summary.exists()


def test_the_run_keeps_its_id_unless_it_starts_anew(prepared):
    cfg, folder = prepared()
    assert die_at("before_step:2", start, cfg) == KILLED
    first = folder.run_id()
    start(cfg)
    assert folder.run_id() == first
    cfg.overwrite = True
    start(cfg)
    assert folder.run_id() != first


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_step_and_saves(prepared, undisturbed, monkeypatch, number, status):
    from dml.methods.plain import Plain

    forward, calls = Plain.forward, 0

    def interrupted(self, *arguments):
        nonlocal calls
        calls += len(arguments[-1]) > 8  # the trial before a run has eight images
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
    state = torch.load(folder.job("repeat0-fold0") / "last.pt", weights_only=True)
    assert state["step"] == 10
    monkeypatch.undo()
    start(cfg)
    if undisturbed:
        assert essence(folder) == undisturbed["essence"]


def test_a_time_limit_saves_and_stops(prepared):
    cfg, folder = prepared("max_minutes=1e-9")
    with pytest.raises(RunStopped) as stopped:
        start(cfg)
    assert stopped.value.status == 75
    limit_free, same = prepared()
    assert same.path == folder.path
    start(limit_free)
    assert folder.summary.exists()


def test_ctrl_c_on_the_command_line_leaves_readable_files(tmp_path):
    command = [sys.executable, "train.py", f"outputs={tmp_path}", *TINY, "data.workers=2"]
    process = subprocess.Popen(
        [*command, "protocol.epochs=5000", "protocol.stopping.patience=null"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.rglob("best.pt")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.strip().splitlines() == ["stopped by SIGINT; saved, the same command continues"]
    (history,) = tmp_path.rglob("history.csv")
    lines = history.read_text().splitlines()
    assert all(line.count(",") == lines[0].count(",") for line in lines)
    (last,) = tmp_path.rglob("last.pt")
    assert torch.load(last, weights_only=True)["step"] > 0


@pytest.mark.soak
def test_twenty_kills_at_random_moments(tmp_path):
    def start(name):
        options = ("data.workers=2", "protocol.epochs=300", "protocol.stopping.patience=null")
        return subprocess.Popen(
            [sys.executable, "train.py", f"outputs={tmp_path / name}", "embedder.size=8", *options],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )

    def last_written(name):
        return max((path.stat().st_mtime for path in (tmp_path / name).rglob("last.pt")), default=0)

    def only_folder(name):
        (config,) = (tmp_path / name).rglob("config.yaml")
        return RunFolder(config.parent)

    assert start("calm").wait() == 0
    moments = random.Random(0)
    for kill in range(20):
        process = start("killed")
        if kill % 4:  # else while it is starting, or has just begun
            before, deadline = last_written("killed"), time.monotonic() + 300
            while last_written("killed") == before and time.monotonic() < deadline:
                assert process.poll() is None
                time.sleep(0.05)
        time.sleep(moments.uniform(0, 2 if kill % 4 else 8))
        assert process.poll() is None, f"it was done before kill {kill}"
        process.kill()
        process.wait()
    assert start("killed").wait() == 0
    assert essence(only_folder("killed")) == essence(only_folder("calm"))
