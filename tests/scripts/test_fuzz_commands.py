"""The fuzzer of commands: its checks find what they are for, and its commands pass."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "scripts"))  # its `environment`
from scripts import draw_emoji, fuzz_commands, show_field, show_proxies
from tests.conftest import TINY, compose_config, run_config

# These end before anything is trained.
FAST = ["plan", "runs", "runs compare", "report", "show_field", "draw_emoji", "search", "benchmark"]


def works():
    """A command that does what it should."""
    print("done")
    return 0


def prints_a_traceback():
    """A command with a defect."""
    raise ValueError("defect")


def dies():
    """A command that is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def waits():
    """A command that neither writes nor works."""
    time.sleep(60)


def writes_over():
    """A command that changes what was there."""
    Path("mine").write_text("other")
    return 0


def is_mute():
    """A command that fails without a word."""
    return 1


def outcome(function, place, wrong=False):
    (place / "mine").write_text("mine")
    command = fuzz_commands.Command(__name__, function.__name__)
    case = fuzz_commands.Case(command, function.__name__, (), wrong)
    return fuzz_commands.run_case(case, place, seconds=20, silence=1)


@pytest.mark.parametrize(
    ("function", "wrong", "problem"),
    [
        (prints_a_traceback, True, "traceback"),
        (dies, True, "died of signal 9"),
        (waits, False, "silent"),
        (writes_over, False, "changes here/mine"),
        (works, True, "status 0 on nonsense"),
        (is_mute, True, "fails without a word"),
    ],
)
def test_each_check_finds_its_fault(tmp_path, function, wrong, problem):
    assert outcome(function, tmp_path, wrong).problems == (problem,)


def test_a_command_that_works_has_no_problems(tmp_path):
    assert outcome(works, tmp_path) == fuzz_commands.Outcome(0, "done\n", (), cut=False)


def test_commands_are_repeatable_and_of_every_kind():
    cases = [fuzz_commands.make_case(0, number) for number in range(600)]
    assert cases == [fuzz_commands.make_case(0, number) for number in range(600)]
    assert {case.name for case in cases} == set(fuzz_commands.COMMANDS)
    assert cases != [fuzz_commands.make_case(1, number) for number in range(600)]


def test_fast_commands(capsys):
    status = fuzz_commands.main(["--seed", "3", "--number", "8", "--names", *FAST])
    printed = capsys.readouterr().out
    assert status == 0, printed
    assert "commands=8 failed=0" in printed


@pytest.mark.soak
def test_600_commands(capsys):
    assert fuzz_commands.main(["--seed", "0", "--number", "600"]) == 0, capsys.readouterr().out


def test_emoji_are_drawn_of_runs_with_emoji(tmp_path, capsys):
    _, folder = run_config(compose_config(f"outputs={tmp_path}", *TINY, "protocol.epochs=1"))
    assert draw_emoji.main([str(folder), "--out", str(tmp_path / "x.png")]) == 1
    error = capsys.readouterr().err
    assert "data=digits" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("folder", [".", "/"])
def test_folders_without_a_name_are_no_runs(tmp_path, monkeypatch, capsys, folder):
    monkeypatch.chdir(tmp_path)
    assert draw_emoji.main([folder, "--out", "x.png"]) == 2
    assert "is not a run folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        *(["--alpha", "inf"], ["--delta", "1e400"], ["--delta", "nan"], ["--alpha", "0"]),
        *(["--seed", str(2**64)], ["--seed", "-1"]),
    ],
)
def test_numbers_of_the_field_are_finite(tmp_path, capsys, words):
    with pytest.raises(SystemExit):
        show_field.main([*words, "--out", str(tmp_path / "x.png")])
    assert f"error: {words[0]} is" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--classes", "-1"], ["--classes", "1"], ["--stages", "-1"]])
def test_numbers_of_the_proxies(tmp_path, capsys, words):
    with pytest.raises(SystemExit):
        show_proxies.main(["digits", *words, "--out", str(tmp_path)])
    assert f"error: {words[0]} is at least" in capsys.readouterr().err
