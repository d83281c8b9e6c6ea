"""Time and memory for each image of a large dataset: made images of one pixel, in tar shards.

    python scripts/benchmark.py growth --images 1000000
    python scripts/benchmark.py growth --images 200000 --form files
    python scripts/benchmark.py growth --images 100000 --parts start

The first start lists the images with their labels (`list`), decodes and hashes each (`check`), is
killed when a part of that is stored, and continues. The second start reads what is stored, and
hashes names, labels and roles (`fingerprint`). Then a small network is trained for two epochs of
some steps. It evaluates a twentieth of the classes before, and after each epoch; its process is
killed in the second epoch, and the same command continues. Every part has a process of its own;
memory is its peak in addition to what importing torch takes. On a busy machine the time of the
processor counts.
"""

from __future__ import annotations

import io
import json
import logging
import multiprocessing
import os
import resource
import tarfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import torch
from PIL import Image

from dml.cli.parser import Parser, whole_number

from ._measure import in_fresh_process, machine, resident_mb

T = TypeVar("T")
PER_SHARD, PER_CLASS = 10_000, 10
TESTED_SHARE = 20  # a class of so many is tested
POLL_SECONDS = 0.02
PARTS = ("start", "train")
FORMS = ("shards", "files")  # files: <split>/<class>/<image>


def write_shards(folder: Path, images: int) -> None:
    """Writes PNG images of one pixel, each of another color, with ten images per class."""
    for start in range(0, images, PER_SHARD):
        path = folder / f"made-{start:09d}.tar"
        if path.exists():
            continue
        with tarfile.open(path.with_suffix(".part"), "w") as archive:
            for number in range(start, min(images, start + PER_SHARD)):
                _append(archive, f"{number:09d}.png", _made_image(number))
                label, split = _class_of(number)
                described = json.dumps({"label": label, "split": split})
                _append(archive, f"{number:09d}.json", described.encode())
        path.with_suffix(".part").rename(path)


def write_files(folder: Path, images: int) -> None:
    """Writes the images of `write_shards` as files in folders of classes."""
    for number in range(images):
        label, split = _class_of(number)
        path = folder / split / str(label) / f"{number:09d}.png"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_made_image(number))


def _made_image(number: int) -> bytes:
    file = io.BytesIO()
    color = (number % 256, number // 256 % 256, number // 65536)
    Image.new("RGB", (1, 1), color).save(file, "PNG")
    return file.getvalue()


def _class_of(number: int) -> tuple[int, str]:
    """Returns label and split of an image."""
    label = number // PER_CLASS
    return label, "train" if label % TESTED_SHARE else "test"


def _append(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def main(argv: list[str]) -> None:
    """Prints a line for each part of a start and of a training run."""
    parser = Parser(__doc__, program="benchmark.py growth")
    parser.add_argument(
        "--images", type=whole_number(400), default=100_000, help="made images (default 100,000)"
    )
    parser.add_argument("--form", choices=FORMS, default=FORMS[0], help="of the made images")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--steps", type=whole_number(1), default=100, help="of an epoch")
    parser.add_argument("--folder", type=Path, help="keeps the images there, for another call")
    options = parser.parse_args(argv)
    print(f"# {machine('cpu')}, {options.images:,} images, {options.images // PER_CLASS:,} classes")
    temporary = TemporaryDirectory(prefix="growth-")
    with temporary if options.folder is None else nullcontext(options.folder) as name:
        folder = Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        root = _write(options.form, folder, options.images)
        if "start" in options.parts:
            _interrupt_first_start(folder, root, options.images)
            for title in ("first start, continued", "second start"):
                in_fresh_process(_start, title, folder, root, options.images)
        if "train" in options.parts:
            _measure_training(folder, root, options.images, options.steps)


def _write(form: str, folder: Path, images: int) -> str:
    """Writes made images in a form; returns the root by which they are read."""
    if form == "files":
        write_files(folder / "images", images)
        return f"{folder}/images"
    write_shards(folder, images)
    return f"{folder}/*.tar"


def _start(title: str, folder: Path, root: str, images: int) -> None:
    """Prints time and memory of each part of a start."""
    torch_mb = resident_mb()
    from dml.data.preparation.image_check import exclude_undecodable
    from dml.data.readers.folder import read_folder

    logging.getLogger("dml").setLevel(logging.ERROR)
    print(f"# {title}", flush=True)
    index = _measure("list", images, torch_mb, lambda: read_folder(root))
    cache = folder / ".cache"
    index = _measure(
        "check", images, torch_mb, lambda: exclude_undecodable(index, skip=False, folder=cache)
    )
    _measure("fingerprint", images, torch_mb, index.fingerprint)


def _measure(part: str, images: int, torch_mb: float, run: Callable[[], T]) -> T:
    """Prints time and memory of a part of a start, and returns its result."""
    start, wall = time.process_time(), time.perf_counter()
    result = run()
    used = time.process_time() - start
    print(
        f"{part:12s} {1e6 * used / images:8.1f} us per image, {time.perf_counter() - wall:8.1f} s, "
        f"{resident_mb() - torch_mb:+8.0f} MB, peak {_peak_mb() - torch_mb:+8.0f} MB",
        flush=True,
    )
    return result


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _interrupt_first_start(folder: Path, root: str, images: int) -> None:
    """Kills a first start when a part of its check is stored."""
    process = _begin(_start, "first start", folder, root, images)
    while process.is_alive() and not list((folder / ".cache").glob("checked-*.npz")):
        time.sleep(POLL_SECONDS)
    process.kill()
    process.join()
    for file in (folder / ".cache").glob("checked-*.npz"):
        known = int((np.load(file)["records"]["state"] > 0).sum())
        print(f"# killed, {known:,} of {images:,} images are checked", flush=True)


def _measure_training(folder: Path, root: str, images: int, steps: int) -> None:
    """Prints the times of a training run that is killed in its second epoch and continued."""
    outputs = folder / "outputs" / str(time.time_ns())
    for title, rows in (("training", 2), ("training, continued", None)):
        print(f"# {title}", flush=True)
        _watch(_begin(_train, root, outputs, steps), outputs, rows)
    (summary,) = outputs.rglob("summary.json")
    rate = json.loads(summary.read_text())["images_per_second"]
    print(f"{'step':12s} {1e6 / rate:8.1f} us per image", flush=True)


def _watch(process: BaseProcess, outputs: Path, rows: int | None) -> None:
    """Prints when a training run begins and when it has evaluated; kills it after so many rows."""
    start = time.perf_counter()
    before = _count_rows(outputs)
    is_begun, seen = False, before
    while process.is_alive():
        time.sleep(POLL_SECONDS)
        now = time.perf_counter() - start
        if not is_begun and any(_is_newer(path, start) for path in outputs.rglob("train.log")):
            is_begun = True
            _print_time("begins", now, process)
        if _count_rows(outputs) > seen:
            seen = _count_rows(outputs)
            _print_time(f"evaluation {seen}", now, process)
        if rows is not None and seen >= rows:
            process.kill()
    process.join()


def _print_time(event: str, seconds: float, process: BaseProcess) -> None:
    """Prints the time since the start of a process, and that of the processor in it."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    print(f"{event:12s} after {seconds:8.1f} s, {used:8.1f} s of the processor", flush=True)


def _is_newer(path: Path, start: float) -> bool:
    """Returns whether a file was written after a time of `time.perf_counter`."""
    return time.time() - path.stat().st_mtime < time.perf_counter() - start


def _count_rows(outputs: Path) -> int:
    return sum(len(path.read_text().splitlines()) - 1 for path in outputs.rglob("history.csv"))


def _train(root: str, outputs: Path, steps: int) -> None:
    torch_mb = resident_mb()
    import dml

    dml_mb = resident_mb() - torch_mb
    report = os.fdopen(os.dup(1), "w")
    with open(os.devnull, "w") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    dml.train(
        [
            *("data=folder", f"data.root='{root}'", "protocol=traditional", "loss=ms"),
            *("backbone=small_cnn", "backbone.width=4", "embedder.size=16", "transform.size=8"),
            *("embedder.pooling=avg", "embedder.init=default", "optim.warmup_epochs=0"),
            *("data.sampler=class_stream", "data.images_per_class=4", "data.batch_size=64"),
            f"protocol.steps_per_epoch={steps}",
            *("protocol.epochs=2", f"outputs={outputs}"),
        ]
    )
    print(
        f"{'memory':12s} peak {_peak_mb() - torch_mb:+8.0f} MB, of which importing dml "
        f"{dml_mb:+8.0f} MB; torch {torch_mb:,.0f} MB",
        file=report,
        flush=True,
    )


def _begin(target: Callable[..., None], *arguments: object) -> BaseProcess:
    """Starts a function of this module in a process that has imported nothing but torch."""
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    return process


assert torch  # imported before memory is measured
