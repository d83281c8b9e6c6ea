"""Images per second from Parquet tables, in their order and shuffled, without decoding.

    python scripts/benchmark.py parquet --images 40000 --kilobytes 10

Writes tables of incompressible bytes with 100 and 10,000 rows in a group, lists them as a training
does, and reads all images in their order, and some at random. The files are in the memory of the
system.
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow
from pyarrow import parquet

from dml.cli.parser import Parser, whole_number
from dml.data.packed_images import read_packed, split_packed
from dml.data.readers.folder import read_folder

from ._measure import machine

GROUPS = (100, 10_000)


def write_table(path: Path, images: int, size: int, group: int) -> None:
    """Writes a table of two classes with random bytes."""
    rng = np.random.default_rng(0)
    schema = pyarrow.schema([("image", pyarrow.binary()), ("label", pyarrow.string())])
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, images, group):
            count = min(group, images - start)
            values = [rng.bytes(size) for _ in range(count)]
            labels = [str((start + row) % 2) for row in range(count)]
            writer.write_table(pyarrow.table({"image": values, "label": labels}, schema), group)


def main(argv: list[str]) -> None:
    """Prints a line for each size of a group and each order."""
    parser = Parser(__doc__, program="benchmark.py parquet")
    parser.add_argument("--images", type=whole_number(100), default=40_000)
    parser.add_argument("--kilobytes", type=whole_number(1), default=10, help="of an image")
    parser.add_argument("--shuffled", type=whole_number(1), default=2000, help="images at random")
    options = parser.parse_args(argv)
    print(f"# {machine('cpu')}, {options.images:,} images of {options.kilobytes} kB")
    for group in GROUPS:
        with TemporaryDirectory(prefix="parquet-") as name:
            path = Path(name, "images.parquet")
            write_table(path, options.images, 1000 * options.kilobytes, group)
            start = time.perf_counter()
            images = read_folder(path).images
            print(f"groups of {group:6,d}  list       {time.perf_counter() - start:12.1f} s")
            rows = np.random.default_rng(1).permutation(options.images)[: options.shuffled]
            for order, some in (("in order", np.arange(options.images)), ("shuffled", rows)):
                start = time.perf_counter()
                for row in some.tolist():
                    packed = split_packed(images[row])
                    assert packed is not None
                    read_packed(packed)
                rate = len(some) / (time.perf_counter() - start)
                print(f"groups of {group:6,d}  {order:10s} {rate:12,.0f} images/s", flush=True)
