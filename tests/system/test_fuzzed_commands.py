"""Random commands end with a run, or with one line for each mistake; they never hang.

`python -m pytest tests/system -m soak -k commands` tries a thousand.
"""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from dml.config.schema import EvaluateConfig
from dml.core.exit_status import ExitStatus
from tests.system.limited_process import TIMED_OUT, Ended, run_limited, train_command
from tests.system.random_commands import random_command, write_scales

LONGEST = 1000  # characters of a line that a user still reads
ROOTS = {*EvaluateConfig.model_fields, "params", "resume", "hydra", "torchrun", "memory"}
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


def find_problem(ended: Ended, words: list[str]) -> str:
    """Says what is wrong with how a command ended; "" if nothing is."""
    if ended.status == TIMED_OUT:
        return "hangs"
    if "Traceback" in ended.out + ended.err or "Fatal Python error" in ended.err:
        return "traceback"
    if ended.status in (ExitStatus.FINISHED, ExitStatus.TIME_LIMIT):
        return ""
    if ended.status not in (ExitStatus.FAILED, ExitStatus.WRONG_COMMAND, ExitStatus.INTERRUPTED):
        return f"status {ended.status}"
    errors = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    for line in errors:
        if len(line) > LONGEST or not names_an_option(line.removeprefix("error: "), words):
            return f"too long, or names no option: {line}"
    return "" if errors else "no line says error"


def names_an_option(line: str, words: list[str]) -> bool:
    """Tells if the line begins with an option and says something, or names a typed one."""
    name, colon, said = line.partition(": ")
    root = re.split(r"[.\[/@=]", name.removeprefix("space of "))[0]
    known = bool(colon and said.strip()) and root in ROOTS
    return known or any((word.partition("=")[0].lstrip("+~") or word) in line for word in words)


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
