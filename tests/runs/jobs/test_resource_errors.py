"""Failures of the machine become errors that name the option which helps."""

import pytest
import torch

from dml.core.errors import UserError
from dml.runs.jobs.resource_errors import translate_resource_errors


@translate_resource_errors
def fail(error):
    raise error


def test_memory_and_workers_for_which_torch_has_no_exceptions():
    with pytest.raises(UserError, match="the machine's memory is full"):
        translate_resource_errors(torch.empty)(2**60)
    text = "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that"
    with pytest.raises(UserError, match=r"died \(is killed by signal: Bus error\); where memory"):
        fail(RuntimeError(text))


def test_other_errors_stay_what_they_are():
    for error in (RuntimeError("shapes differ"), ValueError("x")):
        with pytest.raises(type(error)) as raised:
            fail(error)
        assert raised.value is error


def test_exceptions_that_refer_to_each_other_are_passed_on():
    first, second = ValueError("a"), UserError("b")
    first.__context__, second.__cause__ = second, first
    with pytest.raises(UserError) as raised:
        fail(second)
    assert raised.value is second


class Held:
    alive = 0

    def __init__(self):
        type(self).alive += 1

    def __del__(self):
        type(self).alive -= 1


def test_frames_of_causes_and_contexts_are_freed():
    def hold():
        held = Held()
        raise ValueError(f"{held.alive}")

    @translate_resource_errors
    def work():
        try:
            hold()
        except ValueError as cause:
            raise RuntimeError("translated") from cause

    with pytest.raises(RuntimeError) as raised:
        work()
    assert raised.value.__cause__ is not None
    assert Held.alive == 0


@pytest.mark.parametrize("error", [MemoryError(), UserError("no such image")], ids=repr)
def test_what_a_lambda_captured_is_freed(error):
    @translate_resource_errors
    def work():
        held = Held()
        (lambda: fail(error) if held.alive else None)()

    with pytest.raises(UserError):
        work()
    assert Held.alive == 0
