"""The example of docs/networks.md, run as it is written."""

import json
import re
import shlex
from pathlib import Path

import pytest

from dml.cli import command
from dml.cli.train_command import train

DOCUMENT = (Path(__file__).parents[2] / "docs" / "networks.md").read_text()
SECTION = DOCUMENT.partition("## A network of your own")[2].partition("\n## ")[0]
COMMANDS = [line for line in SECTION.splitlines() if line.startswith("python train.py ")]
FAST = ["data=digits", "protocol.epochs=1", "device=cpu", "outputs=out"]


def _block(language):
    return re.search(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)[1]


@pytest.fixture
def folder(tmp_path, monkeypatch, own_modules):
    (tmp_path / "my_nets.py").write_text(_block("python"))
    (tmp_path / "my_configs" / "backbone").mkdir(parents=True)
    (tmp_path / "my_configs" / "backbone" / "net.yaml").write_text(_block("yaml"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_is_short():
    code = _block("python").strip().splitlines()
    assert len([line for line in code if line and not line.startswith("#")]) <= 15


@pytest.mark.parametrize(("line", "name"), [*zip(COMMANDS, ["Net", "net"], strict=True)])
def test_the_example_runs_as_written(folder, line, name, monkeypatch):
    monkeypatch.setattr("sys.argv", [*shlex.split(line)[1:], *FAST])
    assert command(train, "train") == 0
    [summary] = folder.glob("out/single/*/*/summary.json")
    assert json.loads(summary.read_text())["backbone"] == name
    assert summary.parent.parent.name.endswith(f"-{name}")
