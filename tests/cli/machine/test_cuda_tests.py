"""The tests of a clone that need a GPU are run by pytest, without the variables of torchrun."""

import pytest

from dml.cli.machine import cuda_tests
from dml.cli.machine.cuda_tests import try_cuda_tests

MARKED = """
import os
import pytest

@pytest.mark.cuda
def test_one():
    assert "RANK" not in os.environ
    assert {passes}

def test_other():
    assert False
"""


@pytest.fixture
def clone(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # plugins import torch
    (tmp_path / "tests").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = cuda: needs a GPU\n")
    return tmp_path


@pytest.mark.parametrize("passes", [True, False])
def test_marked_tests_are_run(clone, passes):
    (clone / "tests" / "test_x.py").write_text(MARKED.format(passes=passes))
    (clone / "tests" / "test_y.py").write_text("raise SystemExit")  # without marked tests
    outcome = try_cuda_tests(clone)
    assert outcome.works is passes
    word = "1 passed" if passes else "1 failed"
    assert outcome.result.startswith(word)


def test_tests_that_hang_are_ended(clone, monkeypatch):
    monkeypatch.setattr(cuda_tests, "LIMIT_SECONDS", 0.2)
    text = MARKED.format(passes="__import__('time').sleep(60)")
    (clone / "tests" / "test_x.py").write_text(text)
    outcome = try_cuda_tests(clone)
    assert outcome.state == "FAILED"
    assert outcome.result == "not ready after 0 s"


def test_without_pytest(clone, monkeypatch):
    monkeypatch.setattr(cuda_tests, "find_spec", lambda name: None)
    assert try_cuda_tests(clone).state == "note"
