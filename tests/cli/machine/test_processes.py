"""Processes that exchange tensors: two of this machine, two of torchrun, and those that fail."""

import os
import time
from functools import partial

import pytest

from dml.cli.machine import processes
from dml.cli.machine.processes import _judge, receive, start_processes, try_processes
from dml.core.errors import UserError
from dml.training.process_group import distributed_session
from tests.training.processes import in_two_processes


@pytest.fixture(autouse=True)
def _forked(monkeypatch):
    """Importing torch again would take seconds."""
    monkeypatch.setattr(processes, "START", "fork")


def test_two_processes_exchange_tensors():
    before = dict(os.environ)
    outcome = try_processes()
    assert outcome.works, outcome
    assert outcome.result.startswith("gloo between 2 processes, sums of ")
    assert dict(os.environ) == before


def exchange():
    with distributed_session("cpu") as world:
        outcome = processes.exchange_in(world, "cpu")
    return [outcome.works, outcome.result]


def test_the_processes_of_torchrun_exchange_tensors(tmp_path):
    first, second = in_two_processes(exchange, tmp_path)
    assert first == second
    assert first[0]
    assert first[1].startswith("gloo between 2 processes")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_one_wrong_process_is_a_failure(device):
    outcome = _judge(["0.000100", "rows that were gathered are wrong"], device)
    library = {"cpu": "gloo", "cuda": "NCCL"}[device]
    assert not outcome.works
    assert outcome.result == f"{library}: rows that were gathered are wrong"
    assert f"{library.upper()}_SOCKET_IFNAME=" in outcome.remedy


def test_the_slowest_process_counts():
    outcome = _judge(["0.001000", "0.016777", "0.000100"], "cpu")
    assert outcome.result == "gloo between 3 processes, sums of 1.00 GB/s"


def sleep(answer):
    time.sleep(60)


def end(answer):
    os._exit(3)


@pytest.mark.promise(
    "guides/check_a_machine.md",
    "a process hangs: it is ended after a minute, and its line says so",
)
@pytest.mark.parametrize(
    ("work", "message"),
    [(sleep, "a process does not answer"), (end, "has ended without an answer")],
)
def test_a_process_without_an_answer_is_ended(work, message):
    seconds = 0.1 if work is sleep else 30.0
    began = time.monotonic()
    with (
        pytest.raises(UserError, match=message),
        start_processes(work, [()]) as (answer,),
    ):
        receive(answer, seconds)
    assert time.monotonic() - began < 30


def test_an_error_of_the_connection_is_the_result(monkeypatch):
    monkeypatch.setattr(processes, "distributed_session", partial(refuse, "no route to host"))
    outcome = try_processes()
    assert not outcome.works
    assert outcome.result == "gloo: no route to host"


def refuse(message, *arguments):
    raise UserError(message)
