"""`dml torchrun` ends as the processes that it starts, in one line."""

import os
import signal
import sys
import time

import pytest

from dml.cli import torchrun_command
from tests.commands import torchrun
from tests.conftest import TINY
from tests.forked import context
from tests.waiting import wait_until

TWO = "--nproc-per-node=2"


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Starts the command in a process of its own; `ending_process` stands for `dml`."""
    monkeypatch.setattr(torchrun_command, "PROGRAM", "tests.cli.ending_process")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    processes = []

    def start(*words, ignores_hangup=False):
        process = context().Process(target=run, args=(words, ignores_hangup))
        process.start()
        processes.append(process)
        return process

    def run(words, ignores_hangup):
        os.setsid()
        if ignores_hangup:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        log = os.open(tmp_path / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        status = torchrun(words)
        sys.stderr.flush()
        os._exit(status)

    yield start
    for process in processes:
        if process.is_alive():
            os.killpg(process.pid, signal.SIGKILL)


def wait_for(*paths):
    wait_until(lambda: all(path.exists() for path in paths))


@pytest.mark.parametrize("status", [0, 2, 75])
def test_its_status_is_that_of_the_command(status, started, tmp_path):
    process = started(TWO, "train", f"status={status}")
    process.join(60)
    assert process.exitcode == status
    assert (tmp_path / "output.txt").read_text() == ""


def test_a_killed_process_is_named(started, tmp_path):
    process = started(TWO, "train", "kill=1")
    process.join(60)
    assert process.exitcode == 1
    line = "error: torchrun: process 1 was killed by SIGKILL; run the same command to continue "
    assert (tmp_path / "output.txt").read_text() == f"{line}from the last checkpoint\n"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_ends_it_without_a_traceback(name, started, tmp_path):
    process = started(TWO, "train", f"wait={tmp_path / 'begun'}")
    wait_for(tmp_path / "begun0", tmp_path / "begun1")
    number = signal.Signals[name]
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == 128 + number
    assert (tmp_path / "output.txt").read_text() == ""


def test_nohup_outlives_its_terminal(started, tmp_path):
    process = started(TWO, "train", f"wait={tmp_path / 'begun'}", ignores_hangup=True)
    wait_for(tmp_path / "begun0", tmp_path / "begun1")
    os.kill(process.pid, signal.SIGHUP)
    process.join(1.0)
    assert process.is_alive()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "missing: a command (train, check); "),
        ([TWO], "missing: a command (train, check); "),
        (["trian"], "torchrun: 'trian' is no command of several processes; did you mean 'train'?"),
        (["report"], "torchrun: 'report' is no command of several processes; one of train, check"),
        (["--nproc-per-nde=2", "train"], "unrecognized arguments: --nproc-per-nde=2; "),
        (["--nproc-per-node=two", "train"], "torchrun: Unsupported nproc_per_node value: two"),
        (["--nproc-per-node=0", "train"], "--nproc-per-node: 0 is below 1"),
        (["--nproc-per-node=-1", "train"], "--nproc-per-node: -1 is below 1"),
        (["--nnodes=0", "train"], "--nnodes: '0' is neither a number from 1 nor a range"),
        (["--nnodes=2:1", "train"], "--nnodes: '2:1' is neither"),
        (["--nnodes=a", "train"], "--nnodes: 'a' is neither"),
        (["--nnodes=0:2", "train"], "--nnodes: '0:2' is neither"),
        (["--max-restarts=-1", "train"], "--max-restarts: -1 is below 0"),
        (["--rdzv-backend=xyz", "--rdzv-endpoint=a", "train"], "torchrun: The rendezvous backend"),
    ],
)
def test_a_wrong_word_is_one_line(words, line, capsys):
    assert torchrun(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {line}")
    assert err.count("\n") == 1


def test_help_needs_no_torch(capsys):
    assert torchrun(["--help"]) == 0
    assert "--nproc-per-node=4 train data=sop" in capsys.readouterr().out


@pytest.mark.promise(
    "guides/cluster_and_several_gpus.md",
    "SIGTERM to `dml torchrun`: its processes save after their step, and it ends with the status "
    "143",
)
def test_two_processes_save_and_continue(started, monkeypatch, tmp_path):
    monkeypatch.setattr(torchrun_command, "PROGRAM", "dml")
    output = tmp_path / "output.txt"
    options = [*TINY, "embedder.freeze_batch_norm=true", f"outputs={tmp_path / 'runs'}"]
    process = started(TWO, "train", *options, "protocol.epochs=500")
    end = time.monotonic() + 120
    while not (output.exists() and "untrained" in output.read_text()):
        assert process.is_alive()
        assert time.monotonic() < end
        time.sleep(0.1)
    process.terminate()
    process.join(60)
    assert process.exitcode == 143
    text = output.read_text()
    assert text.count("stopped by SIGTERM; saved. Run the same command to continue.") == 1
    assert "Traceback" not in text
