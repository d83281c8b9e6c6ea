"""Runs that are killed or stopped and continued equal undisturbed ones, bit for bit."""

import json
import multiprocessing
import os
import signal
import time

import pytest
import torch
from omegaconf import OmegaConf

from dml.config.check import check
from dml.core.errors import RunStopped, UserError
from dml.core.exit_status import ExitStatus
from dml.methods.plain import Plain
from dml.runs.experiment import resume
from dml.runs.folder import environment
from dml.runs.folder.run_folder import RunFolder
from tests.killed_process import KILLED, die_at
from tests.system.finished_runs import JOB, results_of, start

# Three epochs of seven steps; a point is passed once per step, evaluation or file.
POINTS = [
    *("before_step:3", "after_step:10", "after_evaluation:3", "before_rename:2"),
    "between_checkpoints:3",
]


@pytest.mark.parametrize(("point", "workers"), [*((point, 0) for point in POINTS), (POINTS[1], 2)])
@pytest.mark.promise(
    "guides/resume.md",
    "a run is killed at any moment: the same command continues from the last checkpoint, and the "
    "result is equal, bit for bit",
)
def test_killed_at_a_fault_point_and_continued(prepared, undisturbed, point, workers):
    cfg, folder = prepared(f"data.workers={workers}")
    assert die_at(point, start, cfg) == KILLED
    assert not folder.summary.exists()
    start(cfg)
    assert results_of(folder) == undisturbed


@pytest.mark.parametrize(
    "words",
    [
        ("method=metrix", "loss=contrastive"),
        ("method=mochi", "loss=contrastive"),
        ("method=imix", "loss=contrastive"),
        ("method=proxy_synthesis", "loss=proxy_anchor"),
        ("method=xbm", "loss=contrastive"),
        ("method=xbm", "loss=ms_miner", "method.start_after=3"),
        ("method=ccp", "loss=c1"),
    ],
    ids=lambda words: "-".join(word.partition("=")[2] for word in words),
)
@pytest.mark.promise(
    "guides/resume.md",
    "a method draws random numbers: they continue where they stopped",
)
def test_a_method_that_draws_continues_with_the_same_numbers(prepared, words):
    calm, undisturbed = prepared(*words, name="calm")
    start(calm)
    cfg, folder = prepared(*words)
    assert die_at("after_step:10", start, cfg) == KILLED
    start(cfg)
    assert results_of(folder) == results_of(undisturbed)


@pytest.mark.promise(
    "guides/resume.md",
    "a run continues with other versions, such as of torch, or another commit: a note says so, and "
    "the summary names both",
)
def test_another_torch_and_commit(restored, undisturbed, monkeypatch, capsys):
    cfg, folder = restored("killed")
    before = json.loads(folder.environment.read_text())["starts"]
    changed = {**before[0]["versions"], "torch": "9.9.9"}
    monkeypatch.setattr(environment, "versions", lambda: changed)
    monkeypatch.setattr(environment, "git_revision", lambda: "abc123")
    summary = start(cfg)
    out = " ".join(capsys.readouterr().out.split())
    assert f"continues with torch 9.9.9 (before: {before[0]['versions']['torch']}), commit" in out
    assert summary["earlier_environments"] == before
    assert len(before) == 1
    assert results_of(folder) == undisturbed


class TestResumeFromTheFolder:
    """`train.py resume=<folder>`: a run killed in its third epoch continues from its own config."""

    def test_a_moved_folder_with_overwrite_in_its_config(self, restored, undisturbed, tmp_path):
        cfg, folder = restored("killed")
        cfg.overwrite = True
        folder.write_config(check(cfg))
        moved = RunFolder(folder.path.rename(tmp_path / "moved"))
        resume(moved.path)
        assert results_of(moved) == undisturbed
        assert not folder.path.exists()

    @pytest.mark.parametrize(("option", "value"), [("backbone.width", 8), ("seed", 3)])
    def test_a_changed_config_is_refused_with_the_difference(self, restored, option, value):
        _, folder = restored("killed")
        stored = OmegaConf.load(folder.config)
        OmegaConf.update(stored, option, value)
        folder.write_config(check(stored))
        with pytest.raises(UserError, match=rf"{option}=.* this run has {option}={value}"):
            resume(folder.path)

    @pytest.mark.promise(
        "guides/resume.md",
        "`resume=` gets an option that changes the result: it is refused",
    )
    def test_other_options_beside_it_are_refused(self, command_line, restored):
        _, folder = restored("killed")
        status, _, err = command_line(f"resume={folder.path}", "optim.lr=1")
        assert status == ExitStatus.WRONG_COMMAND
        assert "leave out optim.lr" in err


@pytest.mark.promise(
    "guides/resume.md",
    "a second process starts the same run of one model: it ends with a line that names the first "
    "one",
)
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


class TestStopped:
    """Runs that are asked to stop finish their step, save, and say how they ended."""

    @pytest.mark.parametrize(
        ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
    )
    @pytest.mark.promise(
        "guides/resume.md",
        "Ctrl-C, SIGTERM or a closed terminal: the run saves after its step and stops, with the "
        "exit status of the table; a sweep begins no further run",
    )
    def test_by_a_signal(self, prepared, undisturbed, monkeypatch, number, status):
        forward, calls = Plain.forward, 0

        def interrupted(self, *arguments):
            nonlocal calls
            calls += len(arguments[-1]) > 8  # the dry run before a run has eight images
            if calls == 10:
                os.kill(os.getpid(), number)
            return forward(self, *arguments)

        cfg, folder = prepared()
        if number == signal.SIGHUP:
            signal.signal(number, signal.SIG_DFL)  # the tests may have been started by nohup
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

    @pytest.mark.promise(
        "guides/resume.md",
        "the terminal of a command under `nohup` is closed: the run goes on",
    )
    def test_not_by_a_closed_terminal_under_nohup(self, prepared, undisturbed, monkeypatch):
        forward = Plain.forward

        def hung_up(self, *arguments):
            os.kill(os.getpid(), signal.SIGHUP)
            return forward(self, *arguments)

        cfg, folder = prepared()
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with monkeypatch.context() as patch:
                patch.setattr(Plain, "forward", hung_up)
                start(cfg)
        finally:
            signal.signal(signal.SIGHUP, before)
        assert results_of(folder) == undisturbed

    @pytest.mark.promise("guides/resume.md", "`max_minutes` is over: the run saves and stops")
    def test_by_the_time_limit(self, prepared, undisturbed):
        cfg, folder = prepared("max_minutes=1e-9")
        with pytest.raises(RunStopped) as stopped:
            start(cfg)
        assert stopped.value.status == ExitStatus.TIME_LIMIT
        without_limit, same = prepared()
        assert same.path == folder.path
        start(without_limit)
        assert results_of(folder) == undisturbed
