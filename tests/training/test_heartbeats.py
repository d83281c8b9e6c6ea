"""A stopped process of torchrun is named, and the others end when they are asked to."""

from __future__ import annotations

import os
import signal
import socket
import time

import pytest
import torch.distributed as dist

from dml.core import deadline
from dml.core.exit_status import ExitStatus
from dml.core.signals import StopRequest
from dml.training import heartbeats
from dml.training.heartbeats import Heartbeats
from tests import forked


@pytest.fixture
def store(monkeypatch, tmp_path):
    monkeypatch.setattr(heartbeats, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(heartbeats, "SILENT_SECONDS", 0.6)
    monkeypatch.setattr(heartbeats, "NOTE_SECONDS", 1.0)
    monkeypatch.setattr(deadline, "BLOCKED_SECONDS", 0.5)
    return tmp_path / "store"


def take_part(path, rank):
    never, _ = os.pipe()
    store = dist.FileStore(str(path), 3)
    with deadline.end_in_time(), StopRequest():
        deadline.note_saved("repeat0-fold0", 20)
        with Heartbeats(store, rank, 3, "it ends after 15 minutes").running():
            store.set(f"ready{rank}", "yes")
            os.read(never, 1)  # as a collective operation: no handler interrupts it


@pytest.mark.promise(
    "guides/cluster_and_several_gpus.md",
    "a process of torchrun is stopped: after half a minute a line names it, and SIGTERM ends the "
    "others within ten seconds, with the step from which the same command continues",
)
def test_a_stopped_process_is_named(store, capfd):
    processes = []
    for rank in range(3):
        processes.append(forked.context().Process(target=take_part, args=(store, rank)))
        processes[-1].start()
    dist.FileStore(str(store), 3).wait([f"ready{rank}" for rank in range(3)])
    time.sleep(0.5)  # some signs of life
    os.kill(processes[0].pid, signal.SIGSTOP)
    named = f"process 0 ({processes[0].pid} on {socket.gethostname()}) has not answered for"
    err = ""
    while named not in err:
        assert all(process.is_alive() for process in processes)
        time.sleep(0.05)
        err += capfd.readouterr().err
    began = time.monotonic()
    for process in processes:
        os.kill(process.pid, signal.SIGTERM)
    for process in processes:
        process.join(30)
    assert time.monotonic() - began < 10
    assert [process.exitcode for process in processes] == [
        -signal.SIGKILL,
        ExitStatus.TERMINATED,
        ExitStatus.TERMINATED,
    ]
    err += capfd.readouterr().err
    assert err.count("note: torchrun: process 0 ") == 1  # by the first process that answers
    assert err.count(f"{named} ") >= 2
    assert "the same command continues repeat0-fold0 from step 20" in err


def test_each_silence_has_a_note(store, capfd):
    shared = dist.FileStore(str(store), 2)
    line = "note: torchrun: process 1 (123 on there) has not answered"
    with Heartbeats(shared, 0, 2, "it ends after 15 minutes").running():
        for beat in (1, 2):
            shared.set("alive1", f"{beat} 123 there")
            err, end = "", time.monotonic() + 30
            while line not in err:
                assert time.monotonic() < end
                time.sleep(0.05)
                err += capfd.readouterr().err
