"""Training steps per second, compared with a plain loop and with what the hardware allows.

    python scripts/benchmark.py train --device cuda
    python scripts/benchmark.py train --network small_cnn --size 32 --batch 32 --steps 5 --only ours
    python scripts/benchmark.py train --count --network bn_inception resnet50 vit_small

The plain loop is that of the papers' repositories: PIL and torchvision's first transforms, float32
in torch's own memory order, PML's loss, and `loss.item()` at every step; on a GPU with TF32
convolutions, torch's default. Ours begins with the same network and loss in strict
float32, and gets one option more with every row. Photos are synthetic JPEG files of 500x375.

All loops of a table run in turns, a few steps each, so that a busy machine is busy for all: rates
are medians over rounds, ratios medians of the ratios of a round. `memory` is the peak of a fresh
process of one loop (of the GPU's allocator; on a CPU of all it holds), `waits` how often the host
waits for the GPU in a step, `roof` the share of what matrix products and memory would allow at the
rates measured in the same run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import torch

from dml.cli.parser import Parser, whole_number
from dml.core.errors import first_line
from dml.core.plain_text import print_plain
from dml.core.processor import available_cores
from dml.training.device import peak_memory_mb

from ._measure import DEVICES, count_waits, in_fresh_process, in_turns, machine, median_ratio
from ._operations import COLUMNS, count_operations
from ._roofline import count_work, measure_byte_rate, measure_flop_rate
from ._training_loops import PLAIN, Loop, Setting, Variant, ladder
from .input import write_photos

BATCHES = {"bn_inception": 32, "resnet50": 128, "vit_base": 64, "vit_small": 128, "small_cnn": 32}
COUNTED_BATCH, COUNTED_SIZE = 4, 64  # the numbers of operations depend on neither
CPUS = available_cores()
MEMORY_STEPS = 2  # in the second one, optimizer and gradients are there


def main(argv: Sequence[str] | None = None) -> None:
    """Prints a table for each network and batch; `--help` lists the options."""
    options = _parsed(argv)
    if options.count:
        _print_operations(options)
        return
    device = torch.device(options.device)
    print(
        f"{machine(options.device)}, {torch.get_num_threads()} threads, {CPUS} CPUs, "
        f"torch {torch.__version__}; crops of {options.size}, medians of {options.rounds} rounds "
        f"of {options.steps} steps"
    )
    with tempfile.TemporaryDirectory() as folder:
        batches = _choose_batches(options)
        largest = max(map(max, batches.values()))
        write_photos(Path(folder), max(options.images, largest))
        for network, sizes in batches.items():
            for batch in sizes:
                _table(Setting(network, batch, options.size, folder, device.type), options)


def _choose_batches(options: argparse.Namespace) -> dict[str, list[int]]:
    """Returns network → sizes of batches."""
    return {network: options.batch or [BATCHES[network]] for network in options.network}


def _print_operations(options: argparse.Namespace) -> None:
    """Prints the operations of our step, with all that a GPU run does by default."""
    print(f"{'operations of a step':24}{'all':>8}" + "".join(f"{one:>14}" for one in COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder), COUNTED_BATCH)
        for network in options.network:
            setting = Setting(network, COUNTED_BATCH, COUNTED_SIZE, folder, options.device)
            counts = count_operations(Loop(setting, Variant("ours", 0, fused=True)))
            row = "".join(f"{counts[one]:14}" for one in COLUMNS)
            print(f"{network:24}{counts.total():8}{row}", flush=True)


def _table(setting: Setting, options: argparse.Namespace) -> None:
    print(f"\n{setting.network}, batch {setting.batch}")
    loops = {}
    for variant in ladder(options.device, options.workers, options.most_workers):
        is_chosen = not options.only or variant.name == PLAIN or variant.name in options.only
        if not is_chosen:
            continue
        report_progress(f"preparing {variant.name}")
        try:
            loops[variant] = Loop(setting, variant)
            loops[variant].advance(1 + options.drained)  # compiles, empties the loader
        except Exception as error:  # no compiler here, or not enough memory for all at once
            loops.pop(variant, None)
            print_plain(f"{variant.name:32}not possible: {first_line(error)}")
    measures = {variant: partial(_rate, loop, options) for variant, loop in loops.items()}
    rates = in_turns(measures, options.rounds)
    waits = {}
    for variant, loop in loops.items():
        waits[variant] = count_waits(loop.step, options.steps, setting.device)
    _print_rates(rates, waits, _roofs(loops), _memory(setting, loops))


def _rate(loop: Loop, options: argparse.Namespace) -> float:
    """Returns images/s; some steps come before, since the loader filled its queue meanwhile."""
    report_progress(f"measuring {loop.variant.name}")
    loop.advance(options.drained)
    return options.steps * loop.setting.batch / loop.advance(options.steps)


def _print_rates(
    rates: dict[Variant, list[float]],
    waits: dict[Variant, float | None],
    roofs: dict[str, float],
    memory: dict[Variant, float],
) -> None:
    """Prints a row for each loop; `rates` and `roofs` in images/s, `memory` in MB."""
    print(f"{'':32}{'images/s':>10}{'ratio':>8}{'waits':>7}{'memory':>11}{'roof':>7}")
    for variant, found in rates.items():
        rate, ratio = median(found), median_ratio(found, next(iter(rates.values())))
        wait = roof = ""
        if waits[variant] is not None:
            wait = f"{waits[variant]:.1f}"
        if variant.precision in roofs:
            roof = f"{rate / roofs[variant.precision]:6.0%}"
        used = f"{wait:>7}{memory[variant]:8.0f} MB{roof:>7}"
        print(f"{variant.name:32}{rate:10.1f}{ratio:7.2f}x{used}", flush=True)


def report_progress(text: str) -> None:
    """Prints the current step to stderr; only the table goes to stdout."""
    print_plain(f"… {text}", file=sys.stderr, flush=True)


def _roofs(loops: dict[Variant, Loop]) -> dict[str, float]:
    """Returns and prints the images/s that the device allows for each precision."""
    eager = next((loop for variant, loop in loops.items() if not variant.compile), None)
    if eager is None:
        return {}
    found = {}
    moved = measure_byte_rate(eager.device)
    for precision in dict.fromkeys(variant.precision for variant in loops):
        work = count_work(eager, precision)
        rate = measure_flop_rate(precision, eager.device)
        batch = eager.setting.batch
        found[precision] = work.images_per_second(batch, rate, moved)
        print(
            f"roof in {precision}: {found[precision]:.0f} images/s; "
            f"{work.flops / batch / 1e9:.1f} GFLOP and {work.bytes / batch / 1e6:.0f} MB an image "
            f"at {rate / 1e12:.2f} TFLOP/s and {moved / 1e9:.0f} GB/s"
        )
    return found


def _memory(setting: Setting, variants: Iterable[Variant]) -> dict[Variant, float]:
    """Returns the peak MB of a fresh process for each loop."""
    report_progress("measuring memory")
    return {variant: in_fresh_process(_memory_here, setting, variant) for variant in variants}


def _memory_here(setting: Setting, variant: Variant) -> float:
    loop = Loop(setting, variant)
    loop.advance(MEMORY_STEPS)
    return peak_memory_mb(loop.device)


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(__doc__, program="benchmark.py train")
    add = parser.add_argument
    add("--network", nargs="+", choices=BATCHES, default=["bn_inception", "resnet50", "vit_base"])
    add(
        "--batch",
        nargs="+",
        type=whole_number(2),
        help="images of a step (default: by network, 32 to 128)",
    )
    add("--size", type=whole_number(1), default=224, help="side of the crops (default 224)")
    add("--images", type=whole_number(1), default=512, help="JPEG files (default 512)")
    add("--steps", type=whole_number(1), default=20, help="in a round (default 20)")
    add("--rounds", type=whole_number(1), default=5)
    add("--device", choices=DEVICES, default="cpu")
    add("--workers", type=whole_number(0), default=min(4, CPUS), help="loaders of the plain loop")
    add(
        "--most-workers",
        type=whole_number(0),
        default=min(16, CPUS),
        help="loaders of the last row",
    )
    add("--only", nargs="+", help="rows beside the plain loop, such as ours '+ bf16'")
    add("--count", action="store_true", help="count the operations of a step; measure nothing")
    options = parser.parse_args(argv)
    names = [one.name for one in ladder(options.device, options.workers, options.most_workers)]
    unknown = set(options.only or ()) - set(names)
    if unknown:
        parser.error(f"--only: no row {', '.join(sorted(unknown))}; one of {', '.join(names)}")
    largest = max(map(max, _choose_batches(options).values()))
    if options.images < largest:
        parser.error(f"--images: {options.images} is fewer than a batch of {largest}")
    # A loader keeps two batches ready for each of its workers.
    options.drained = 2 * options.most_workers if options.device == "cuda" else 1
    return options
