"""Runs that the tests of whole commands share: each is trained once and copied where needed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import DictConfig
from PIL import Image

from dml.config.check import check
from dml.runs.folder.run_folder import RunFolder
from dml.training.checkpoint_files import Checkpoints
from tests.commands import embed
from tests.conftest import TINY, compose_config, run_config, without_pictures
from tests.killed_process import KILLED, die_at
from tests.system.finished_runs import Results, results_of, start

DIGITS = (*TINY, "protocol.epochs=3")  # seven steps an epoch


@pytest.fixture
def prepared(tmp_path) -> Callable[..., tuple[DictConfig, RunFolder]]:
    """Returns the config and the folder of a run on digits that was not started yet."""

    def prepare(*overrides: str, name: str = "outputs") -> tuple[DictConfig, RunFolder]:
        cfg = compose_config(f"outputs={tmp_path / name}", *DIGITS, *overrides)
        return cfg, RunFolder.of(check(cfg))

    return prepare


def start_with_complete_saves(cfg: DictConfig) -> None:
    """Starts a run that waits until each checkpoint is written."""
    save = Checkpoints.save

    def save_and_wait(checkpoints: Checkpoints, state: dict[str, Any]) -> None:
        save(checkpoints, state)
        checkpoints.wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "save", save_and_wait)
        start(cfg)


@pytest.fixture(scope="session")
def stored_runs(tmp_path_factory) -> Path:
    """A folder with `killed/`, a run on digits killed in its third epoch, and `finished/`."""
    home = tmp_path_factory.mktemp("stored_runs")
    cfg = compose_config(f"outputs={home}", *DIGITS)
    folder = RunFolder.of(check(cfg))
    with without_pictures():
        assert die_at("before_step:17", start_with_complete_saves, cfg) == KILLED
        shutil.copytree(folder.path, home / "killed")
        folder.clear()
        start(cfg)
    shutil.copytree(folder.path, home / "finished")
    return home


@pytest.fixture(scope="session")
def undisturbed(stored_runs) -> Results:
    """Results of the run on digits, trained in one go."""
    return results_of(RunFolder(stored_runs / "finished"))


@pytest.fixture
def restored(prepared, stored_runs) -> Callable[[str], tuple[DictConfig, RunFolder]]:
    """Copies the killed or the finished run to where its command finds it."""

    def restore(state: str) -> tuple[DictConfig, RunFolder]:
        cfg, folder = prepared()
        shutil.copytree(stored_runs / state, folder.path)
        return cfg, folder

    return restore


@pytest.fixture(scope="session")
def runs_and_photos(tmp_path_factory) -> Path:
    """A folder with two runs in `outputs/`, a copy of one in `run/`, photos and embeddings."""
    place: Path = tmp_path_factory.mktemp("prepared")
    with chdir(place):
        with without_pictures():
            for seed, name in enumerate(("first", "second")):
                words = (*TINY, "protocol.epochs=1", f"seed={seed}", f"name={name}")
                _, folder = run_config(compose_config("outputs=outputs", *words))
        shutil.copytree(folder, "run")
        Path("photos").mkdir()
        for number in range(3):
            Image.effect_noise((8, 8), 50 * number + 10).save(f"photos/{number}.png")
        assert embed(["run", "photos", "photos.npz"]) == 0
        np.savez("scored.npz", embeddings=np.eye(4), labels=[0, 0, 1, 1])
    return place


@pytest.fixture
def place(runs_and_photos, tmp_path, monkeypatch) -> Path:
    """A copy of `runs_and_photos`, as the current folder."""
    monkeypatch.setattr("sys.argv", [*sys.argv])
    shutil.copytree(runs_and_photos, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"
