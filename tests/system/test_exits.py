"""A user's own code that exits: every command and function ends in one line."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dml
from dml.core.errors import UserError
from dml.tracking import RunInfo
from dml.tracking.tracker import GuardedTracker, Tracker
from dml.training.process_group import ProcessGroup
from tests.commands import embed, export, search

NETWORK = """
import os
import sys
from dml.models.small_cnn import SmallCNN

if os.environ.get("EXITS") == "module":
    sys.exit(7)

class Network(SmallCNN):
    def __init__(self, width=4, weights="none", input_size=None):
        if os.environ.get("EXITS") == "constructor":
            sys.exit(7)
        super().__init__(weights, input_size, width)

    def forward(self, images):
        if os.environ.get("EXITS") == "forward":
            sys.exit(7)
        return super().forward(images)
"""
LINE = "it would end the program; raise an Exception instead"
PLACES = ["module", "constructor", "forward"]
WITHOUT_FORWARD = ("load", "load_all", "export")


@pytest.fixture
def folder(run_tiny, own_modules, tmp_path, monkeypatch):
    """A run of a user's network, photos, and their embeddings, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("my_network.py").write_text(NETWORK)
    _, made = run_tiny("protocol.epochs=1", "backbone._target_=my_network.Network")
    made.rename("run")
    Path("photos").mkdir()
    for number in range(3):
        Image.effect_noise((8, 8), 50).save(f"photos/{number}.png")
    shutil.copy("photos/0.png", "query.png")
    dml.embed("run", "photos", "photos.npz", trust=True)
    return tmp_path


def forget_modules() -> None:
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


CALLS = {
    "load": lambda: dml.load("run", trust=True)[0](np.zeros(0)),
    "load_all": lambda: dml.load_all("run", trust=True)[0, 0][0],
    "embed": lambda: dml.embed("run", "photos", "other.npz", trust=True),
    "search": lambda: dml.search("photos.npz", ["query.png"], k=1, trust=True),
    "export": lambda: dml.export("run", "net", trust=True),
}
COMMANDS = {
    "embed": lambda: embed(["run", "photos", "other.npz", "--trust"]),
    "search": lambda: search(["photos.npz", "query.png", "-k1", "--trust"]),
    "export": lambda: export(["run", "net", "--trust"]),
}


@pytest.mark.parametrize("place", PLACES)
def test_functions_raise_a_user_error(folder, monkeypatch, place):
    forget_modules()
    monkeypatch.setenv("EXITS", place)
    for name, call in CALLS.items():
        if place == "forward" and name in WITHOUT_FORWARD:
            continue
        with pytest.raises(UserError, match=LINE):
            call()


@pytest.mark.parametrize("place", PLACES)
def test_commands_end_in_one_line(folder, monkeypatch, capfd, place):
    forget_modules()
    monkeypatch.setenv("EXITS", place)
    for name, command in COMMANDS.items():
        if place == "forward" and name in WITHOUT_FORWARD:
            continue
        capfd.readouterr()
        assert command() in (1, 2), name
        printed = capfd.readouterr().err.splitlines()
        errors = [line for line in printed if line.startswith("error: ")]
        assert [LINE in line for line in errors] == [True], (name, printed)
        assert not [line for line in printed if "Traceback" in line], printed


@pytest.mark.parametrize("place", PLACES)
def test_trainings_end_in_one_line(folder, command_line, monkeypatch, place):
    forget_modules()
    monkeypatch.setenv("EXITS", place)
    for words in (["resume=run", "trust=true"], ["data=digits", "backbone=custom"]):
        if words[0].startswith("resume"):
            shutil.rmtree("run/checkpoints")
            Path("run/summary.json").unlink()
        else:
            words = [*words, "backbone._target_=my_network.Network", "device=cpu"]
        status, _, err = command_line(*words)
        assert status in (1, 2), words
        assert err.count(LINE) == 1
        assert "Traceback" not in err


def test_an_exit_of_the_first_process_reaches_the_others(monkeypatch):
    """Before, they waited for it until their time was over."""
    sent = []
    group = ProcessGroup(0, 2)
    monkeypatch.setattr("torch.distributed.broadcast_object_list", lambda s, **o: sent.append(s))

    def work():
        raise SystemExit(7)

    with pytest.raises(UserError, match=LINE):
        group.broadcast_from_main(work)
    assert LINE in sent[0][1]


def test_a_tracker_that_exits_is_a_note(tmp_path):
    class Exits(Tracker):
        def start(self, run):
            raise SystemExit(7)

    notes = []
    tracker = GuardedTracker(Exits(), notes.append)
    tracker.start(RunInfo(tmp_path, "abc", "name", "group", {}, [(0, 0)]))
    assert LINE in notes[0]
    assert len(notes) == 1
