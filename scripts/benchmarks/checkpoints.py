"""The time between two evaluations with checkpoints written during training, or in its thread.

    python scripts/benchmark.py checkpoints --device cuda
    python scripts/benchmark.py checkpoints --step-ms 20

An interval is a save of the best and of the last state (weights; weights and the two moments of
Adam) and the steps after it. `beside` copies both states and writes them while the steps run, as a
run does; what is not written after the steps is waited for. `in its thread` writes them first, and
`none` saves nothing. All three take turns; times are medians over rounds, ratios medians of the
ratios of a round. `held` is the time until the first step. Images are random numbers on the device.
With `--step-ms` a step is a pause of the host, which waits like that for a GPU; a state is written
that one step of training made.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from dml.cli.parser import Parser, whole_number
from dml.core.atomic_io import replace_file
from dml.losses import MeanFieldContrastiveLoss
from dml.methods.plain import Plain
from dml.models.embedder import Embedder
from dml.training.checkpoint_files import Checkpoints
from dml.training.interfaces import TrainConfig
from dml.training.optim import build_optimizer, parameter_groups
from dml.training.step import TrainingStep
from dml.training.train_state import TrainState

from ._measure import DEVICES, in_turns, machine, median_ratio
from ._training_loops import DIMENSIONS, ENDLESS, build_backbone, synchronize

CLASSES = 100


class Interval:
    """A training run whose steps between two evaluations can be timed.

    Args:
        options: of the command line.
        folder: of the checkpoints.
    """

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        torch.manual_seed(0)
        self.options, self.device = options, torch.device(options.device)
        embedder = Embedder(build_backbone(options.network, options.size), DIMENSIONS).to(
            self.device
        )
        method = Plain(MeanFieldContrastiveLoss(CLASSES, DIMENSIONS)).to(self.device)
        groups = parameter_groups(embedder, method, lr=1e-4, loss_lr=1e-2)
        self.state = TrainState(embedder, method, build_optimizer(torch.optim.Adam, groups, {}))
        self._train_on = TrainingStep(self.state, TrainConfig(1, ENDLESS, ENDLESS))
        shape = options.batch, 3, options.size, options.size
        self._images = torch.randn(shape, device=self.device)
        self._labels = torch.randint(CLASSES, shape[:1], device=self.device)
        self.checkpoints = Checkpoints(folder, {})

        self._step()  # the optimizer has its state

    def seconds(self, save: Callable[[], None]) -> tuple[float, float]:
        """Returns the time of a save and the steps after it, everything on disk; that of the save.

        The device has nothing left to do before and after.
        """
        start = time.perf_counter()
        save()
        held = time.perf_counter() - start
        for _ in range(self.options.steps):
            if self.options.step_ms is None:
                self._step()
            else:
                time.sleep(self.options.step_ms / 1e3)
        synchronize(self.device)
        self.checkpoints.wait()
        return time.perf_counter() - start, held

    def _step(self) -> None:
        self._train_on(self._images, self._labels, warming_up=False)

    def beside(self) -> None:
        """Saves as a run does."""
        self.checkpoints.keep_best(self.state.weights())
        self.checkpoints.save(self.state.state_dict())

    def in_its_thread(self) -> None:
        """Writes the same files before the first step."""
        states: dict[str, dict[str, Any]] = {
            "best.pt": self.state.weights(),
            "last.pt": self.state.state_dict(),
        }
        for name, state in states.items():
            with (
                replace_file(self.checkpoints.folder / name) as temporary,
                open(temporary, "wb") as file,
            ):
                torch.save(state, file)


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the times of the three ways; `--help` lists the options."""
    options = _parsed(argv)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        interval = Interval(options, Path(folder))
        ways = {
            "none": lambda: None,
            "in its thread": interval.in_its_thread,
            "beside": interval.beside,
        }
        measures = {way: partial(interval.seconds, save) for way, save in ways.items()}
        in_turns(measures, 1)  # warms up
        found = in_turns(measures, options.rounds)
        files = interval.checkpoints.best, interval.checkpoints.last
        size = sum(path.stat().st_size for path in files) / 1e6
    print(
        f"{machine(options.device)}, {torch.get_num_threads()} threads; {options.network}, batch "
        f"{options.batch} at {options.size}, {options.steps} steps, {size:.0f} MB of files, "
        f"medians of {options.rounds} rounds"
    )
    print(f"{'':16}{'interval':>10}{'ratio':>8}{'held':>10}")
    for way, pairs in found.items():
        times, held = zip(*pairs, strict=True)
        ratio = median_ratio(times, [none for none, _ in found["none"]])
        print(f"{way:16}{median(times):8.2f} s{ratio:7.2f}x{median(held):8.2f} s")


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__, program="benchmark.py checkpoints")
    parser.add_argument("--network", choices=["bn_inception", "resnet50", "small_cnn"])
    parser.set_defaults(network="resnet50")
    parser.add_argument("--batch", type=whole_number(2), default=32)
    parser.add_argument("--size", type=whole_number(1), default=224, help="side of the images")
    parser.add_argument(
        "--steps", type=whole_number(1), default=183, help="default: an epoch of CUB"
    )
    parser.add_argument("--step-ms", type=whole_number(1), help="a step is a pause of so long")
    parser.add_argument("--rounds", type=whole_number(1), default=5)
    parser.add_argument("--folder", help="on the disk to measure; default: that of temporary files")
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    return parser.parse_args(argv)
