"""Runs that are killed again and again: the same command ends with the same results."""

import multiprocessing
import os
import random
import signal
import sys

import pytest

from dml.cli.program import main
from tests.conftest import TINY
from tests.forked import context

KILLS = 20
SECONDS = (0.3, 5.0)  # before a kill
SMALL = (*TINY, "protocol.epochs=6")
ON_GLYPHS = [word.replace("data=digits", "data=glyphs") for word in SMALL if "epochs" not in word]
COMMANDS = {
    "grid": ("-m", *SMALL, "seed=0,1", "data.workers=1"),
    "ccp": (*SMALL, "method=ccp", "loss=c1"),
    "metrix": (*SMALL, "method=metrix", "loss=contrastive"),
    "xbm": (*SMALL, "method=xbm", "loss=contrastive"),
    "parallel-folds": (
        *ON_GLYPHS, "data.reader.per_class=5", "protocol=mlrc", "protocol.epochs=3",
        "protocol.steps_per_epoch=5", "protocol.repeats=1", "protocol.workers=2",
    ),
}  # fmt: skip


def train(words, folder):
    """Runs `train.py` in a session of its own, as a terminal does."""

    def become():
        os.setsid()
        os.chdir(folder)
        sys.argv = ["dml", "train", *words]
        os._exit(main())

    process = context().Process(target=become)
    process.start()
    return process


def histories(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("outputs/single/**/history.csv")
    }


@pytest.mark.soak
@pytest.mark.parametrize("kind", COMMANDS)
def test_killed_runs_have_the_same_histories(kind, tmp_path):
    words = COMMANDS[kind]
    (calm := tmp_path / "calm").mkdir()
    undisturbed = train(words, calm)
    undisturbed.join()
    assert undisturbed.exitcode == 0
    draw, kills, completions = random.Random(kind), 0, 0
    while kills < KILLS:
        (folder := tmp_path / str(completions)).mkdir()
        while (process := train(words, folder)).exitcode is None:
            process.join(None if kills == KILLS else draw.uniform(*SECONDS))
            if process.exitcode is None:
                # The whole terminal, or the process alone: its children end by themselves.
                (os.killpg if draw.random() < 0.5 else os.kill)(process.pid, signal.SIGKILL)
                process.join()
                kills += 1
            if process.exitcode == 0:
                break
            assert process.exitcode == -signal.SIGKILL
        completions += 1
        assert histories(folder) == histories(calm) != {}
    print(f"{kind}: {kills} kills, {completions} completions")
    assert not multiprocessing.active_children()
