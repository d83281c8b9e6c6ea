"""A wheel, installed in a fresh environment, works from any folder as the clone does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import TINY

ROOT = Path(__file__).resolve().parents[2]
PACKAGED = ("dml", "configs", "hydra_plugins")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
pytestmark = pytest.mark.soak
TRACKER = "from dml.tracking import Tracker\n\n\nclass Own(Tracker):\n    pass\n"


@dataclass(frozen=True)
class Installation:
    """An environment with the wheel, and an empty folder to work in."""

    environment: Path
    folder: Path

    def run(self, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of the environment's `bin` in the folder."""
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [self.environment / "bin" / command, *words],
            cwd=self.folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )


def pip(*words: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def installation(tmp_path_factory) -> Installation:
    home = tmp_path_factory.mktemp("wheel")
    source, environment, folder = home / "source", home / "environment", home / "elsewhere"
    for name in PACKAGED:  # a copy: a build leaves files behind
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, source)
    pip("wheel", "--no-deps", "--no-build-isolation", "-q", "-w", home, source)
    (wheel,) = home.glob("*.whl")
    venv.create(environment)
    pip("--python", environment, "install", "-q", "--no-deps", "--no-index", wheel)
    # The packages that this one needs come from here; their own .pth files, one of which may lead
    # to this repository, are not read through this line.
    (site,) = environment.glob("lib/*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    folder.mkdir()
    (folder / "own_tracker.py").write_text(TRACKER)
    return Installation(environment, folder)


def test_training_from_another_folder(installation):
    code = "import dml, dml.core.installation as i; print(dml.__file__, i.CONFIGS, sep='\\n')"
    places = installation.run("python", "-c", code).stdout.splitlines()
    assert [Path(one).is_relative_to(installation.environment) for one in places] == [True] * 2

    own_class = "tracking._target_=own_tracker.Own"
    done = installation.run("dml", "train", "data=digits", *TINY, own_class)
    assert done.returncode == 0, done.stderr
    (summary,) = installation.folder.glob("outputs/single/*/*/summary.json")
    assert json.loads(summary.read_text())["git_revision"].startswith("version 0.")


def test_every_other_command(installation):
    run = installation.run
    assert run("dml", "train", "data=digits", "seed=1", *TINY).returncode == 0
    (folder,) = installation.folder.glob("outputs/single/*/seed1-*/")
    for command, *words in (
        ("runs",),
        ("evaluate", f"run={folder}"),
        ("report", "single", "--no-figures"),
        ("prepare", "digits"),
        ("plan", "mft_table12"),
    ):
        done = run("dml", command, *words)
        assert done.returncode == 0, done.stderr
    assert (folder / "evaluation.json").is_file()
    assert (installation.folder / "outputs" / "reports" / "single.html").is_file()

    absent = run("dml", "train", "data=cub")
    assert absent.returncode == 1
    assert absent.stderr.endswith("; run: dml prepare cub\n")
    assert "  dml train loss=mfcont data=cub  " in run("dml", "train", "--help").stdout
    assert ": dml report mft_table1" in run("dml", "report", "--help").stdout
