"""Failures of the machine become errors that name the option which helps."""

import pytest
import torch

from dml.core.errors import UserError
from dml.runs.job import translate_resource_errors


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
