"""Time and memory for each image of a large dataset: tar shards of made images of one pixel.

    python scripts/benchmark.py growth --images 100000

Lists the images with their labels (`index`), hashes names, labels and roles (`fingerprint`),
decodes and hashes every image (`check`), and reads what is known of them at the second start
(`check again`). Times are of the processor, in all threads, so that those of a busy machine count
little; memory is what the process holds in addition to torch, and its peak.
"""

from __future__ import annotations

import io
import logging
import resource
import tarfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from PIL import Image

from dml.cli.parser import Parser, whole_number
from dml.data.preparation.image_check import exclude_undecodable
from dml.data.readers.folder import read_folder

from ._measure import machine, resident_mb

T = TypeVar("T")
PER_SHARD, PER_CLASS = 10_000, 10


def write_shards(folder: Path, images: int) -> None:
    """Writes PNG images of one pixel, each of another color, with ten images per class."""
    for start in range(0, images, PER_SHARD):
        with tarfile.open(folder / f"made-{start:09d}.tar", "w") as archive:
            for number in range(start, min(images, start + PER_SHARD)):
                file = io.BytesIO()
                color = (number % 256, number // 256 % 256, number // 65536)
                Image.new("RGB", (1, 1), color).save(file, "PNG")
                _append(archive, f"{number:09d}.png", file.getvalue())
                _append(archive, f"{number:09d}.cls", str(number // PER_CLASS).encode())


def _append(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def main(argv: list[str]) -> None:
    """Prints a line for each part of a start."""
    parser = Parser(__doc__, program="benchmark.py growth")
    parser.add_argument(
        "--images", type=whole_number(40), default=100_000, help="made images (default 100,000)"
    )
    options = parser.parse_args(argv)
    logging.getLogger("dml").setLevel(logging.ERROR)
    print(f"# {machine('cpu')}, {options.images:,} images")
    with TemporaryDirectory(prefix="growth-") as name:
        folder = Path(name)
        write_shards(folder, options.images)
        resident = resident_mb()
        index = _measure("index", options.images, resident, lambda: read_folder(f"{folder}/*.tar"))
        _measure("fingerprint", options.images, resident, index.fingerprint)
        check = partial(exclude_undecodable, index, skip=False, folder=folder)
        for part in ("check", "check again"):
            _measure(part, options.images, resident, check)


def _measure(part: str, images: int, resident: float, run: Callable[[], T]) -> T:
    """Prints time and memory of a part of a start, and returns its result."""
    start, wall = time.process_time(), time.perf_counter()
    result = run()
    used = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - resident
    print(
        f"{part:12s} {1e6 * used / images:8.1f} us per image, {time.perf_counter() - wall:8.1f} s, "
        f"{resident_mb() - resident:+8.0f} MB, peak {peak:+8.0f} MB",
        flush=True,
    )
    return result
