"""Commands and code that the README shows do what it says."""

import re
import shlex
from pathlib import Path

import pytest

from dml.cli.program import COMMANDS
from dml.config.check import check
from dml.results.catalog import list_cells

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TRAIN = [
    shlex.split(options)
    for options in re.findall(r"`(?:python train\.py|dml torchrun \S+ train) ([^`<]*)`", README)
]


@pytest.mark.parametrize("words", TRAIN, ids=" ".join)
def test_commands_of_the_table_are_valid(words, composed):
    if "--help" in words:
        return
    words = [word.partition(",")[0] for word in words if word != "-m"]
    if words[0].startswith("experiment="):
        assert list_cells(words[0].partition("=")[2], words[1:])
    elif "loss._target_=my_losses.CenterLoss" not in words:  # tests/docs/test_guides.py runs it
        check(composed(*words))


def test_the_other_commands_exist():
    commands = re.findall(r"`dml (\w+)", README)
    assert len(set(commands)) >= 5
    assert set(commands) <= COMMANDS.keys()
    scripts = re.findall(r"`python ((?!train)\S+\.py)", README)
    assert all((ROOT / name).is_file() for name in scripts)
    targets = set(re.findall(r"^make (\w+)", README, re.M))
    assert targets >= {"install", "demo", "test"}
    assert all(f"\n{name}:" in (ROOT / "Makefile").read_text() for name in targets)


def test_mistakes_are_answered_as_shown(command_line):
    shown = re.findall(r"^```\n\$ (.*?)```", README, re.M | re.S)
    command, *errors = shown[0].strip().splitlines()
    status, _, err = command_line(*shlex.split(command)[2:])
    assert status == 2
    assert err.strip().splitlines() == errors
