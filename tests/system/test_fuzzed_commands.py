"""Random commands end with a run, or with one line for each mistake; they never hang.

`python -m pytest tests/system -m soak -k commands` tries a thousand, and some as whole processes.
"""

import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.system.expected_endings import find_problem
from tests.system.limited_process import Ended, run_limited, train_command
from tests.system.random_commands import NUMBERS, STRUCTURES, WORDS, random_command, write_scales

ROOT = Path(__file__).resolve().parents[2]
PART = 50  # commands in a test
SECONDS = 60  # time limit of a command
STEPS = 4  # after which a run is asked to stop, since some random runs are valid and endless


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A folder in which commands run, with data for them; all that they import is imported."""

    from dml.data.digits import read_digits
    from dml.data.glyphs import read_glyphs
    from dml.runs.figures.drawing import learning_curve  # noqa: F401

    home = tmp_path_factory.mktemp("commands")
    read_digits()
    read_glyphs(home / "data", classes=24, per_class=6)
    rng = np.random.default_rng(0)
    for label in range(8):
        place = home / "images" / f"class_{label}"
        place.mkdir(parents=True)
        for item in range(6):
            pixels = rng.integers(0, 256, (18, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / f"{item}.png")
    return home


def train_a_few_steps(words: list[str]) -> int:
    from dml.core.errors import RunStopped
    from dml.runs.jobs import train_jobs
    from dml.training.interrupts import StopRequest

    yaml.SafeLoader = yaml.CSafeLoader  # type: ignore[misc]  # a command composes often
    asked = 0

    def stop_soon(_: StopRequest) -> RunStopped | None:
        nonlocal asked
        asked += 1
        return RunStopped("enough", 75) if asked > STEPS else None

    StopRequest.__call__ = stop_soon  # type: ignore[method-assign]
    # Parallel processes would import everything again; the loop after them trains the models.
    train_jobs.train_in_parallel = lambda *_: None
    return train_command("overwrite=true", *words)


def run_command(words: list[str], home: Path) -> Ended:
    """Runs `python train.py <words>` in `home`, for a few steps at most."""
    places = [*write_scales(home), f"outputs={home}/outputs"]
    if not any(word.startswith("data.root=") for word in words):
        places.append(f"data.root={home}/data")
    return run_limited(lambda: train_a_few_steps([*places, *words]), home, SECONDS)


def run_whole(script: str, words: list[str], home: Path) -> Ended:
    """Runs a command as a user types it."""
    done = subprocess.run(
        [sys.executable, str(ROOT / script), *words],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def find_problems(seeds, home: Path) -> str:
    """Runs random commands; describes the problems, with the commands that show them again."""
    found = []
    for seed in seeds:
        words = random_command(seed, home / "images")
        ended = run_command(words, home)
        if problem := find_problem(ended, words):
            again = f"python train.py {shlex.join([*write_scales(home), *words])}"
            found.append(f"{seed}: {problem}\n  {again}\n{ended.err[-3000:]}")
    return "\n".join(found)


def test_some_commands(home):
    assert not find_problems(range(1000, 1010), home)


@pytest.mark.soak
@pytest.mark.parametrize("start", range(0, 1000, PART))
def test_a_thousand_commands(start, home):
    assert not find_problems(range(start, start + PART), home)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2000, 2012))
def test_whole_commands(seed, home):
    words = random_command(seed, home / "images")
    places = [f"outputs={home}/whole", f"data.root={home}/data", "max_minutes=0.2"]
    ended = run_whole("train.py", [*write_scales(home), *places, *words], home)
    assert not find_problem(ended, words)


OTHERS = (
    (
        "evaluate.py",
        ["backbone=small_cnn", "data=digits"],
        ["recall_at", "save", "run", "precision"],
    ),
    ("evaluate.py", ["embeddings=none.npz"], ["recall_at", "embeddings", "device"]),
    ("scripts/plan.py", ["experiment=mft_table2"], ["protocol.repeats", "data", "search.trials"]),
    ("scripts/report.py", ["outputs"], ["--format", "--out", "-x"]),
)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("script", "words", "options"), OTHERS)
def test_other_whole_commands(script, words, options, seed, home):
    rng = random.Random(seed)
    words = [*words, f"{rng.choice(options)}={rng.choice((*NUMBERS, *STRUCTURES, *WORDS))}"]
    ended = run_whole(script, words, home)
    assert "Traceback" not in ended.out + ended.err, (words, ended.err)
    assert ended.status in (0, 1, 2), words
