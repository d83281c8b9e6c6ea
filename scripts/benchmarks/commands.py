"""Whole commands compared with plain scripts: a training run of one epoch, and `dml embed`.

    python scripts/benchmark.py commands --cases train embed --rounds 5

Each command is a process of its own, in turns with the scripts of `_plain_commands.py`, on JPEG
files of 500 × 375; times contain the start of Python. An epoch of `dml train` scores the network
before and after it; `plain, untrained too` is the script that does so, `plain` scores it after it.
Processor time counts all threads, and is to be compared where other programs run.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from clone import ROOT

from dml.cli.parser import Parser, whole_number

from ._measure import in_turns, machine, median_ratio
from ._plain_commands import DIMENSIONS, NETWORK, TRAIN_BATCH
from .input import write_photos

CLASSES = 20
PLAIN = "scripts.benchmarks._plain_commands"
BASE = "plain"


class Used(NamedTuple):
    """What a process has used.

    Attributes:
        wall: seconds from its start to its end.
        processor: seconds of its threads and child processes.
    """

    wall: float
    processor: float


def train_commands(folder: Path, size: int) -> dict[str, list[str]]:
    """Returns the training of one epoch, and its scripts, by name."""
    words = [str(folder), str(size)]
    scripts = {
        BASE: ["-m", PLAIN, "train", *words],
        "plain, untrained too": ["-m", PLAIN, "train-untrained-too", *words],
    }
    ours = ["-m", "dml", "train", "data=folder", f"data.root={folder}"]
    ours += [
        f"outputs={folder.parent}/outputs",
        "overwrite=true",
        "device=cpu",
        "protocol=traditional",
    ]
    ours += ["protocol.epochs=1", "loss=proxy_anchor", "embedder.pooling=avg"]
    ours += ["backbone=timm", f"backbone.model={NETWORK}", "backbone.weights=none"]
    ours += [f"transform.size={size}", f"embedder.size={DIMENSIONS}"]
    ours += [f"data.batch_size={TRAIN_BATCH}", "optim.warmup_epochs=0"]
    return {**scripts, "ours": ours}


def embed_commands(folder: Path, size: int) -> dict[str, list[str]]:
    """Returns `dml embed` of the test images, and its script, by name."""
    script = ["-m", PLAIN, "embed", str(folder), str(size)]
    ours = ["-m", "dml", "embed", f"timm:{NETWORK}", f"{folder}/test"]
    ours += [f"{folder.parent}/ours.npz", "--overwrite", "backbone.weights=none"]
    ours += [f"backbone.input_size={size}"]
    return {BASE: script, "ours": ours}


CASES = {"train": train_commands, "embed": embed_commands}


def measure(command: Sequence[str]) -> Used:
    """Runs Python with some words, and returns what it has used.

    Raises:
        RuntimeError: it failed; with the end of what it printed.
    """
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{ended.stdout[-2000:]}")
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return Used(wall, user + system)


def main(argv: list[str] | None = None) -> None:
    """Prints a table for each case; `--help` lists the options."""
    parser = Parser(__doc__, program="benchmark.py commands")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES])
    parser.add_argument(
        "--images", type=whole_number(100), default=2000, help="JPEG files, half for training"
    )
    parser.add_argument("--size", type=whole_number(32), default=64, help="pixels of an input")
    parser.add_argument("--rounds", type=whole_number(1), default=5)
    options = parser.parse_args(argv)
    print(f"# {machine('cpu')}, {options.images} JPEG of 500x375, {NETWORK} at {options.size}")
    with TemporaryDirectory(prefix="commands-") as name:
        folder = Path(name, "images")
        write_classes(folder, options.images)
        for case in options.cases:
            commands = CASES[case](folder, options.size)
            measures = {name: partial(measure, words) for name, words in commands.items()}
            in_turns(measures, 1)  # what is kept on the disk, such as the check of the images
            report(case, in_turns(measures, options.rounds))


def write_classes(folder: Path, images: int) -> None:
    """Writes images into `train/<class>/` and `test/<class>/` of a folder, in turns."""
    folder.mkdir()
    files = write_photos(folder, images).index.images
    for number, file in enumerate(map(Path, files)):
        split = "train" if number % 2 else "test"
        part = folder / split / f"{split}{number // 2 % CLASSES}"
        part.mkdir(parents=True, exist_ok=True)
        file.rename(part / file.name)


def report(case: str, used: dict[str, list[Used]]) -> None:
    """Prints medians, and those of the ratios of each round to the plain script."""
    print(f"\n{case:24}{'wall s':>8}{'ratio':>8}{'CPU s':>8}{'ratio':>8}")
    for name, rounds in used.items():
        walls, processors = zip(*rounds, strict=True)
        base_walls, base_processors = zip(*used[BASE], strict=True)
        print(
            f"{name:24}{median(walls):>8.1f}{median_ratio(walls, base_walls):>8.2f}"
            f"{median(processors):>8.1f}{median_ratio(processors, base_processors):>8.2f}",
            flush=True,
        )
