"""`train.py` in a forked process, with everything imported and little to train on."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

from tests.fuzz.commands import written
from tests.fuzz.contained import Outcome, contained

SECONDS = 60
STEPS = 4  # after which a run is asked to stop: some are valid and endless


def warmed(home: Path) -> Path:
    """Imports what commands need, and makes their data below `home`; returns a folder of images."""
    import dml.methods.metrix.measured_positivity
    import dml.runs.evaluate
    import dml.runs.experiment
    import dml.runs.search.search_loop  # noqa: F401
    from dml.data.digits import read_digits
    from dml.data.glyphs import read_glyphs
    from dml.runs.figures.drawing import learning_curve  # noqa: F401

    read_digits()
    read_glyphs(home / "data", classes=24, per_class=6)
    rng = np.random.default_rng(0)
    for label in range(8):
        place = home / "images" / f"class_{label}"
        place.mkdir(parents=True)
        for item in range(6):
            pixels = rng.integers(0, 256, (18, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / f"{item}.png")
    return home / "images"


def run_command(words: list[str], home: Path, seconds: float = SECONDS) -> Outcome:
    """Runs `python train.py <words>` in `home`, for a few steps at most."""
    places = [*written(home), f"outputs={home}/outputs"]
    if not any(word.startswith("data.root=") for word in words):
        places.append(f"data.root={home}/data")
    return contained(lambda: _train([*places, *words]), home, seconds)


def _train(words: list[str]) -> int:
    from hydra.core.global_hydra import GlobalHydra

    from dml.cli import command
    from dml.core.errors import RunStopped
    from dml.runs.jobs import train_jobs
    from dml.training.interrupts import StopRequest
    from train import resume, train

    GlobalHydra.instance().clear()
    yaml.SafeLoader = yaml.CSafeLoader  # type: ignore[misc]  # a command composes often
    asked = 0

    def enough(_: StopRequest) -> RunStopped | None:
        nonlocal asked
        asked += 1
        return RunStopped("enough", 75) if asked > STEPS else None

    StopRequest.__call__ = enough  # type: ignore[method-assign]
    # Processes of their own would import everything anew; the loop after them trains the models.
    train_jobs.train_in_parallel = lambda *_: None
    sys.argv = ["train.py", "overwrite=true", *words]
    return command(train, "train", resume)
