"""What a long training holds, and how long its evaluations take, from its beginning to its end.

    python scripts/benchmark.py long_run --steps 20000 --every 10

Trains a small network on handwritten digits, evaluates it after every ten steps, and prints a line
for each tenth of the training: memory, open files, the size of `history.csv`, and the time of an
evaluation with the steps before it and its checkpoints. Memory is that of the process, with torch.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import dml
from dml.cli.parser import Parser, whole_number

from ._measure import machine, resident_mb

LINES = 10
POLL_SECONDS = 0.05


@dataclass
class Watch:
    """A thread that prints a line whenever a tenth of the evaluations is finished.

    Attributes:
        folder: in which the run folder will be.
        evaluations: of the whole training.
    """

    folder: Path
    evaluations: int

    def __post_init__(self) -> None:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, after the last line."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        part = max(1, self.evaluations // LINES)
        counted, printed, since = 0, 0, time.perf_counter()
        read = 0
        while True:
            is_last = self._is_over.wait(POLL_SECONDS)
            for history in self.folder.rglob("history.csv"):
                size = history.stat().st_size
                if size != read:
                    read = size
                    counted = history.read_bytes().count(b"\n") - 2  # header, untrained network
                if counted >= printed + part:
                    now = time.perf_counter()
                    _print_line(counted, size, (now - since) / (counted - printed))
                    printed, since = counted, now
            if is_last:
                return


def _print_line(evaluations: int, size: int, seconds: float) -> None:
    files = len(os.listdir("/proc/self/fd"))
    print(
        f"{evaluations:11,d} {resident_mb():8.0f} MB {files:6d} files {size / 1000:8.0f} kB "
        f"{1e3 * seconds:8.1f} ms",
        flush=True,
    )


def main(argv: list[str]) -> None:
    """Prints what a training run holds at each tenth of its length."""
    parser = Parser(__doc__, program="benchmark.py long_run")
    parser.add_argument(
        "--steps", type=whole_number(10), default=20_000, help="of the training (default 20,000)"
    )
    parser.add_argument(
        "--every", type=whole_number(1), default=10, help="steps between evaluations (default 10)"
    )
    options = parser.parse_args(argv)
    evaluations = options.steps // options.every
    print(f"# {machine('cpu')}, {options.steps:,} steps, {evaluations:,} evaluations")
    print("evaluations     memory  descriptors history.csv  each")
    with TemporaryDirectory(prefix="long-run-") as name:
        watch = Watch(Path(name), evaluations)
        try:
            dml.train(
                [
                    *("data=digits", "loss=ms", "backbone.width=4", "embedder.size=8"),
                    *(
                        "data.batch_size=16",
                        "data.sampler=random",
                        "data.images_per_class_at_most=20",
                    ),
                    f"protocol.steps_per_epoch={options.steps // 10}",
                    *("protocol.epochs=10", "protocol.evaluate_unit=steps"),
                    f"protocol.evaluate_every={options.every}",
                    *("protocol.stopping.patience=null", f"outputs={name}"),
                ]
            )
        finally:
            watch.stop()
