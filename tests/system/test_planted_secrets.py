"""A planted key and password in everything that a command writes or prints."""

import logging
import os
import sys
from typing import ClassVar

import numpy as np
import pytest

from dml.config.identity import digest
from dml.core.exit_status import ExitStatus
from dml.results.frame import write_runs
from dml.retrieval.embedding_file import ImageEmbeddings, write_embeddings
from dml.runs.folder.stored_run import read_run
from dml.tracking import Tracker
from dml.tracking.tracker import RunInfo
from dml.tracking.weights_and_biases import WandbTracker
from tests.commands import report
from tests.conftest import compose_config
from tests.core.secret_forms import SECRET, WORDS
from tests.system.conftest import DIGITS
from tests.system.finished_runs import only_run_folder

KEY, PASSWORD = "planted-key-123", "planted-password-456"


class KeyTracker(Tracker):
    """A tracker that needs a key."""

    configs: ClassVar[list] = []

    def __init__(self, api_key, url):
        assert (api_key, url) == (KEY, f"https://me:{PASSWORD}@host")

    def start(self, run):
        self.configs.append(run.config)


def options(**values):
    named = {"_target_": f"{__name__}.KeyTracker", "name": "none", **values}
    return [f"{'++' if k != 'name' else ''}tracking.{k}={v}" for k, v in named.items()]


SECRETS = options(api_key=KEY, url="'https://me:${oc.env:PLANTED}@host'")


def read_all(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_nothing_shows_a_key(command_line, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PLANTED", PASSWORD)
    words = (*DIGITS, "protocol.epochs=1", *SECRETS, f"outputs={tmp_path / 'outputs'}")
    status, out, err = command_line(*words)
    assert status == 0, err
    folder = only_run_folder(tmp_path / "outputs")
    assert "api_key=***" in folder.command.read_text()
    assert report(["single", f"--runs={tmp_path / 'outputs'}"]) == 0
    wrong = command_line(*words, "protocol.epochs=zero")
    grid = command_line("-m", *words, "seed=0,1", "loss.alpha=-1")
    assert wrong[0] != 0
    assert grid[0] != 0
    printed = "".join(
        [out, err, *wrong[1:], *grid[1:], *capfd.readouterr(), str(KeyTracker.configs)]
    )
    everything = printed.encode() + read_all(tmp_path) + read_all(tmp_path / "outputs")
    assert b"***" in everything
    for secret in (KEY, PASSWORD):
        assert secret.encode() not in everything
    assert not [name for name in os.listdir(folder.path.parent) if KEY in name]


def test_resume_takes_them_from_the_command(command_line, tmp_path, monkeypatch):
    monkeypatch.setenv("PLANTED", PASSWORD)
    words = (*DIGITS, "protocol.epochs=1", *SECRETS, f"outputs={tmp_path / 'outputs'}")
    assert command_line(*words, "max_minutes=0.0001")[0] == ExitStatus.TIME_LIMIT
    resumed = f"resume={only_run_folder(tmp_path / 'outputs').path}"
    status, _, err = command_line(resumed, "trust=true")
    assert status == ExitStatus.WRONG_COMMAND
    assert "tracking.api_key is not stored" in err
    assert "tracking.url is not stored" in err
    url = "tracking.url=https://me:${oc.env:PLANTED}@host"
    # The limit of time is stored too: the run stops again, now with its tracker.
    assert (
        command_line(resumed, "trust=true", f"tracking.api_key={KEY}", url)[0]
        == ExitStatus.TIME_LIMIT
    )


def test_they_are_no_part_of_the_digest():
    plain = digest(compose_config(*DIGITS))
    assert digest(compose_config(*DIGITS, "+method.token=planted-key-123")) == plain


def test_resume_takes_the_folder_of_moved_data(command_line, restored):
    _, folder = restored("killed")
    assert command_line(f"resume={folder.path}", "data.root=/elsewhere")[0] == 0
    assert "root: /elsewhere" in folder.config.read_text()


class OpenTracker(Tracker):
    """A tracker that prints words."""

    def __init__(self, words):
        assert SECRET in str(words)

    def start(self, run):
        run.notify(f"words: {' '.join(WORDS)}")
        logging.getLogger().warning("words: %s", WORDS)


def test_every_form_in_everything(command_line, tmp_path, capfd):
    values = ",".join(repr(word) for word in WORDS if "'" not in word)
    tracker = (
        f"++tracking._target_={__name__}.OpenTracker",
        "tracking.name=none",
        f"++tracking.words=[{values}]",
    )
    words = (*DIGITS, "protocol.epochs=1", *tracker, f"outputs={tmp_path / 'outputs'}")
    status, out, err = command_line(*words)
    assert status == 0, err
    assert "words: " in out
    assert report(["single", f"--runs={tmp_path / 'outputs'}"]) == 0
    runs = [read_run(only_run_folder(tmp_path / "outputs").path)]
    printed = "".join([out, err, *capfd.readouterr(), write_runs(runs)])
    assert SECRET.encode() not in printed.encode() + read_all(tmp_path)


def test_the_record_of_wandb(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setattr(sys, "argv", ["train.py", *WORDS])
    config = {"tracking": dict(enumerate(WORDS)), "api_key": SECRET}
    settings = {"api_key": (SECRET * 3)[:40], "run_notes": " ".join(WORDS), "run_tags": WORDS[:1]}
    tracker = WandbTracker(mode="offline", tags=WORDS[:8], settings=settings)
    tracker.start(RunInfo(tmp_path, "abc", "name", "group", config, [(0, 0)], notify=str))
    tracker.conclude({"metrics": {}}, ())
    tracker.finish()
    assert sys.argv[1:] == list(WORDS)
    assert list(tmp_path.rglob("*.wandb"))
    assert SECRET[:12].encode() not in read_all(tmp_path)
    assert (tmp_path / "wandb").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["wandb", "tensorboard", "mlflow"])
def test_what_a_run_sends_to_a_tracker(command_line, tmp_path, monkeypatch, name):
    """Names, notes, tags and options of a run, and its command line."""
    pytest.importorskip(name)
    shown = [word for word in WORDS if "'" not in word]
    words = (f"name='{shown[0]}'", f"note='{shown[-2]}'", f"tracking={name}")
    if name == "wandb":
        tags = ",".join(f"'{word[:60]}'" for word in shown if len(word) < 60)
        words = (*words, "tracking.mode=offline", f"tracking.tags=[{tags}]")
    if name == "mlflow":
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
        words = (*words, f"+tracking.tags.word='{shown[0]}'", f"+tracking.tags.password={SECRET}")
    outputs = f"outputs={tmp_path / 'outputs'}"
    status, _, err = command_line(*DIGITS, "protocol.epochs=1", outputs, *words)
    assert status == 0, err
    written = {"wandb": "*.wandb", "tensorboard": "events.*", "mlflow": "mlflow.db"}
    assert list(tmp_path.rglob(written[name]))
    assert SECRET.encode() not in read_all(tmp_path)


def test_a_file_of_embeddings(tmp_path):
    made_by = {"network": "timm:resnet18", "options": list(WORDS)}
    stored = ImageEmbeddings(np.eye(2, dtype="f"), np.array(["a", "b"]), None, made_by)
    write_embeddings(tmp_path / "x.npz", stored)
    assert SECRET.encode() not in read_all(tmp_path)
