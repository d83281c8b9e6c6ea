"""The fuzzer of commands: its checks find what they are for, and its commands pass."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "scripts"))  # its `clone`
from dml.cli.program import COMMANDS as PROGRAM
from scripts import fuzz_commands
from scripts.fuzz.cases import Case, make_case
from scripts.fuzz.commands import COMMANDS, KINDS, Command
from scripts.fuzz.process import Ended, Ending
from scripts.fuzz.verdict import Outcome, try_case
from studies import draw_emoji, show_field, show_proxies
from tests.conftest import TINY, compose_config, run_config

ROOT = Path(__file__).parents[2]
# The last two need a network, and minutes.
NO_COMMANDS = {"fuzz_commands", "prepare_drawings", "plant_mistakes"}
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


def works_on():
    """A command that takes long."""
    while True:
        pass


def writes_over():
    """A command that changes what was there."""
    Path("mine").write_text("other")
    return 0


def is_mute():
    """A command that fails without a word."""
    return 1


def outcome(function, place, wrong=False, seconds=20):
    (place / "mine").write_text("mine")
    name = function.__name__
    case = Case(name, Command(f"{__name__}:{name}"), (), wrong)
    return try_case(case, place, seconds, silence=1)


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
    assert outcome(works, tmp_path) == Outcome(Ended(0, Ending.ITSELF), "done\n", ())


def test_a_command_that_works_on_is_cut(tmp_path):
    ended = outcome(works_on, tmp_path, seconds=1.5)
    assert (ended.ended.ending, ended.problems) == (Ending.CUT, ())


def test_commands_are_repeatable_and_of_every_kind():
    cases = [make_case(0, number) for number in range(600)]
    assert cases == [make_case(0, number) for number in range(600)]
    assert {case.name for case in cases} == set(COMMANDS)
    assert cases != [make_case(1, number) for number in range(600)]
    words = {word.partition("=")[2] or word for case in cases for word in case.words}
    for name, kind in KINDS.items():
        values = {*kind.wrong, *kind.odd}
        assert len(values & words) > len(values) / 2, name


def test_every_command_and_script_is_tried():
    called = {command.call.partition(":")[0] for command in COMMANDS.values()}
    names = {f"dml {name}" for name in PROGRAM}
    for folder in ("scripts", "studies"):
        for path in ROOT.glob(f"{folder}/*.py"):
            if path.stem not in NO_COMMANDS and "__main__" in path.read_text(encoding="utf-8"):
                names.add(f"{folder}.{path.stem}")
    assert called == names


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
        *(["--alpha", "101"], ["--delta", "2"], ["--delta", str(2**63)]),
        *(["--seed", str(2**64)], ["--seed", "-1"]),
    ],
)
def test_numbers_of_the_field_are_finite(tmp_path, capsys, words):
    assert show_field.main([*words, "--out", str(tmp_path / "x.png")]) == 2
    assert f"error: {words[0]} is" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--classes", "-1"], ["--classes", "1"], ["--stages", "-1"]])
def test_numbers_of_the_proxies(tmp_path, capsys, words):
    assert show_proxies.main(["digits", *words, "--out", str(tmp_path)]) == 2
    assert f"error: {words[0]} is at least" in capsys.readouterr().err
