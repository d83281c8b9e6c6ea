"""How fast images are read and embedded, and how long the first row of a table takes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dml.cli.machine.outcome import Outcome
from dml.config.check import check
from dml.config.compositions import compose_config
from dml.core.processor import available_cores
from dml.core.progress import format_seconds
from dml.data.decode import load_image
from dml.data.loaders import MOST_WORKERS, resolve_eval_batch_size
from dml.models.embedder import Embedder
from dml.results.catalog import list_cells
from dml.results.plan import count_evaluated_images
from dml.runs.build import Builder
from dml.training.device import autocast, resolve_device, set_precision

EXPERIMENT = "off_the_shelf"
CHOICES = ("data=cub", "backbone.model=vit_small_patch16_224.dino")
ROWS = 2  # boxes and whole images
FILES, HEIGHT, WIDTH = 8, 375, 500  # of photos as in CUB
SECONDS = 1.5  # in which a speed is measured
CPU_BATCH = 8  # images in a batch on a processor, so that a batch takes about a second


class FirstRow:
    """The first row of a table: a pretrained network on CUB, without training.

    Its network has random weights here: nothing is downloaded. `input_speed` and `step_speed`, in
    images per second, are set when they are measured.
    """

    def __init__(self) -> None:
        self.input_speed: float | None = None
        self.step_speed: float | None = None
        self._builder: Builder | None = None
        self._embedder: Embedder | None = None

    def try_input(self) -> Outcome:
        """Reads photos as files of JPEG, and brings them to the size of the network."""
        builder, embedder = self._build()
        transforms = builder.transforms(embedder)
        with tempfile.TemporaryDirectory() as folder:
            files = _write_photos(Path(folder))

            def read() -> int:
                for file in files:
                    transforms.to_input(transforms.test(load_image(file)))
                return len(files)

            speed = _measure(read)
        cores = count_cores()
        self.input_speed = speed * cores
        return Outcome(
            f"{_format_speed(speed)} of {WIDTH} x {HEIGHT} pixels on one of {cores} cores"
        )

    def try_embedding(self) -> Outcome:
        """Embeds batches by the network of the first row."""
        builder, embedder = self._build()
        device, config = resolve_device("auto"), builder.config
        set_precision(config.precision, device)
        embedder = embedder.to(device).eval()
        side = embedder.input.size or 224
        count = resolve_eval_batch_size("auto", side, device)
        if device.type == "cpu":
            count = min(count, CPU_BATCH)
        images = torch.rand(count, 3, side, side)

        def embed() -> int:
            with torch.inference_mode(), autocast(config.precision, device):
                embedder(images.to(device)).cpu()  # waits for the GPU
            return count

        self.step_speed = _measure(embed)
        speed = _format_speed(self.step_speed)
        return Outcome(f"{speed}, {config.precision}, batches of {count}")

    def estimate(self) -> Outcome:
        """Estimates the time of the row, of boxes and of whole images, from the two speeds."""
        if self.input_speed is None or self.step_speed is None:
            remedy = "mend what failed above"
            return Outcome("unknown, since a speed is", remedy, works=False, is_needed=False)
        images = count_evaluated_images(self._build()[0].config) or 0
        seconds = ROWS * images * _seconds_per_image(self.input_speed, self.step_speed)
        return Outcome(f"about {format_seconds(seconds)} for {ROWS} x {images:,.0f} images")

    def _build(self) -> tuple[Builder, Embedder]:
        """Returns builder and network, which are made once."""
        if self._builder is None or self._embedder is None:
            (cell,) = list_cells(EXPERIMENT, CHOICES)
            words = [*cell.overrides, "backbone.weights=none"]
            self._builder = Builder(check(compose_config(words)))
            with torch.random.fork_rng(devices=[]):
                self._embedder = self._builder.embedder()
        return self._builder, self._embedder


def _seconds_per_image(input_speed: float, step_speed: float) -> float:
    if resolve_device("auto").type == "cuda":
        return 1 / min(input_speed, step_speed)  # both at the same time
    return 1 / input_speed + 1 / step_speed


def _format_speed(speed: float) -> str:
    return f"{speed:.1f} images/s" if speed < 10 else f"{speed:,.0f} images/s"


def count_cores() -> int:
    """Returns the cores that loading processes of this process would use."""
    return min(MOST_WORKERS, available_cores())


def _write_photos(folder: Path) -> list[Path]:
    """Writes smooth noise, which has about as many bytes as photos."""
    generator = np.random.default_rng(0)
    files = []
    for number in range(FILES):
        pixels = generator.integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), dtype=np.uint8)
        files.append(folder / f"{number}.jpg")
        Image.fromarray(pixels).resize((WIDTH, HEIGHT)).save(files[-1], quality=90)
    return files


def _measure(work: Callable[[], int]) -> float:
    """Returns the images per second of a function that returns their number, after one call."""
    work()
    images, start = 0, time.perf_counter()
    while (seconds := time.perf_counter() - start) < SECONDS or not images:
        images += work()
    return images / seconds
