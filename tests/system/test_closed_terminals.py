"""Terminals that close and outputs that break: a training run is saved, or goes on."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
import torch

from dml.core.exit_status import ExitStatus
from tests import commands
from tests.conftest import TINY
from tests.terminals import Terminal

LONG = (
    *(word for word in TINY if not word.startswith("protocol.epochs")),
    *("protocol.epochs=2000", "protocol.stopping.patience=null"),
)
FOLDS = (
    *(word for word in LONG if word != "data=digits"),
    *("data=glyphs", "data.reader.per_class=5", "protocol=mlrc", "protocol.repeats=1"),
    *("protocol.steps_per_epoch=1", "transform.size=16"),
)
KINDS = {
    "single": LONG,
    "sweep": ("-m", *LONG, "seed=0,1,2"),
    "search": (*FOLDS, "search=bayes", "search.trials=2"),
    "folds": FOLDS,
    "workers": (*FOLDS, "protocol.workers=2"),
}
SAVED = "stopped by SIGHUP; saved"
LOST = "note: the output cannot be written (Input/output error); the work goes on"


def logs(folder):
    return "".join(path.read_text() for path in folder.rglob("train.log"))


def states(folder):
    return [torch.load(path, weights_only=True) for path in folder.rglob("last.pt")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.promise(
    "guides/resume.md",
    "Ctrl-C, SIGTERM or a closed terminal: the run saves after its step and stops, with the exit "
    "status of the table; a sweep begins no further run",
)
def test_a_terminal_that_closes_stops_a_training(kind, tmp_path):
    terminal = Terminal(("train", *KINDS[kind]), tmp_path)
    terminal.read_until(lambda: logs(tmp_path).count("saved") > 2)
    terminal.close()
    assert terminal.wait() == ExitStatus.HUNG_UP
    assert SAVED in logs(tmp_path)
    *_, last = re.findall(r"last.pt, step (\d+)", logs(tmp_path))
    assert int(last) in [state["step"] for state in states(tmp_path)]
    assert len(list(tmp_path.glob("outputs/single/*/*/config.yaml"))) == 1


@pytest.mark.parametrize("kind", ["single", "sweep"])
def test_sighup_decides_where_the_write_error_comes_first(kind, tmp_path):
    terminal = Terminal(("train", *KINDS[kind]), tmp_path, controls=False)
    terminal.read_until(lambda: "saved" in logs(tmp_path))
    terminal.close()
    while LOST not in logs(tmp_path):
        assert terminal.process.is_alive()
    os.kill(terminal.process.pid, signal.SIGHUP)
    assert terminal.wait() == ExitStatus.HUNG_UP
    assert SAVED in logs(tmp_path)
    assert len(list(tmp_path.rglob("config.yaml"))) == 1


@pytest.mark.promise(
    "guides/resume.md",
    "the output breaks (`| head`, a `tee` that dies, a full disk behind `>`, a terminal that is "
    "gone without SIGHUP): a training run goes on, its lines and one about the output are in "
    "`train.log`, and its scores are in its folder",
)
def test_a_sweep_goes_on_without_its_terminal(tmp_path):
    words = ("train", "-m", *LONG[:-2], LONG[-1], "protocol.epochs=5", "seed=0,1")
    terminal = Terminal(words, tmp_path, controls=False)
    terminal.read_until(lambda: "saved" in logs(tmp_path))
    terminal.close()
    assert terminal.wait() == ExitStatus.FINISHED
    assert len(list(tmp_path.rglob("summary.json"))) == 2
    for log in tmp_path.rglob("train.log"):  # also in that of the run that began later
        assert log.read_text().count(LOST) == 1
        assert "epoch 5 of 5" in log.read_text()


def closed_pipe():
    read, write = os.pipe()
    os.close(read)
    return write


def closed_terminal():
    master, slave = os.openpty()
    os.close(master)
    return slave


LISTS = {
    "runs": [],
    "runs-best": ["best"],
    "runs-compare": ["compare", "first", "second"],
    "runs-json": ["--json"],
    "report": ["single", "--no-figures"],
    "search": ["photos.npz", "0", "-k1"],
    "search-csv": ["photos.npz", "0", "-k1", "--csv"],
    "embed": ["run", "photos", "other.npz"],
    "export": ["run", "network"],
    "evaluate": ["run=run"],
    "plan": ["mft_table12"],
    "prepare": ["digits"],
}
MADE = {
    "report": "outputs/reports/single.html", "embed": "other.npz", "export": "network/config.yaml",
    "evaluate": "run/evaluation.json", "runs-compare": "outputs/comparisons",
}  # fmt: skip


@pytest.mark.parametrize("open_closed", [closed_pipe, closed_terminal])
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.promise(
    "guides/resume.md",
    "the output of another command is closed: it does its work, and ends with the status 0",
)
def test_commands_end_well_where_their_output_is_closed(name, open_closed, place, capfd):
    command = getattr(commands, name.partition("-")[0])
    with open(open_closed(), "w", buffering=1) as output, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        assert command(LISTS[name]) == ExitStatus.FINISHED
    assert "error: " not in capfd.readouterr().err
    if name in MADE:
        assert Path(MADE[name]).exists()
