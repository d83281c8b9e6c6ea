"""Commands made by chance end with a run, or with a line for each mistake; they never hang.

`python -m pytest tests/fuzz -m soak` goes through a thousand, and through some as whole processes.
"""

import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.commands import NUMBERS, STRUCTURES, WORDS, command, written
from tests.fuzz.contained import Outcome
from tests.fuzz.harness import run_command, warmed
from tests.fuzz.told import complaint

ROOT = Path(__file__).resolve().parents[2]
PART = 50


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    """Where commands run, and a folder of images there."""
    home = tmp_path_factory.mktemp("fuzz")
    return home, warmed(home)


def complaints(seeds, home: Path, images: Path) -> str:
    """What went wrong, with the commands to see it again."""
    found = []
    for seed in seeds:
        words = command(seed, images)
        outcome = run_command(words, home)
        if problem := complaint(outcome, words):
            again = f"python train.py {shlex.join([*written(home), *words])}"
            found.append(f"{seed}: {problem}\n  {again}\n{outcome.err[-3000:]}")
    return "\n".join(found)


def test_some_commands(bench):
    assert not complaints(range(1000, 1010), *bench)


@pytest.mark.soak
@pytest.mark.parametrize("start", range(0, 1000, PART))
def test_a_thousand_commands(start, bench):
    assert not complaints(range(start, start + PART), *bench)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2000, 2012))
def test_whole_commands(seed, bench):
    home, images = bench
    words = command(seed, images)
    places = [*written(home), f"outputs={home}/whole", f"data.root={home}/data", "max_minutes=0.2"]
    assert not complaint(whole("train.py", [*places, *words], home), words)


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
def test_other_whole_commands(script, words, options, seed, bench):
    home, _ = bench
    rng = random.Random(seed)
    words = [*words, f"{rng.choice(options)}={rng.choice((*NUMBERS, *STRUCTURES, *WORDS))}"]
    outcome = whole(script, words, home)
    assert "Traceback" not in outcome.out + outcome.err, (words, outcome.err)
    assert outcome.status in (0, 1, 2), words


def whole(script: str, words: list[str], home: Path) -> Outcome:
    """A command as a user types it."""
    done = subprocess.run(
        [sys.executable, str(ROOT / script), *words],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr, 0.0)
