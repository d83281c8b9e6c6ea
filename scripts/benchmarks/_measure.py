"""Time, memory and waits of a training step, for the suites that compare steps."""

from __future__ import annotations

import argparse
import csv
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch

Step = Callable[[], None]
ROOT = Path(__file__).parents[2]


def median_times(steps: dict[str, Step], rounds: int) -> dict[str, float]:
    """Returns the median milliseconds of each step over interleaved rounds, after a warm-up."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for round_ in range(rounds + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            if round_ > 0:
                times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def added_peak(step: Step, device: str) -> float:
    """Returns the MB that one step adds to what this process holds, at its peak."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    resident = _status_kb("VmRSS")
    step()
    return (_status_kb("VmHWM") - resident) * 1024 / 1e6


def count_waits(step: Step, steps: int, device: str) -> float | None:
    """Returns how often the host waits for a GPU in a step; None on a CPU."""
    if device != "cuda":
        return None
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            for _ in range(steps):
                step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA" in str(one.message) for one in found) / steps


def read_timm_rates(path: str) -> dict[tuple[str, int], float]:
    """Returns images/s in training by network and batch, as timm's benchmark.py wrote them.

    Args:
        path: its `--results-file` (CSV).

    Raises:
        ArgumentTypeError: there is no such file, or it has no rates of training.
    """
    rates = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if rate := row.get("train_samples_per_sec"):
                    rates[row["model"], int(row["train_batch_size"])] = float(rate)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError) as error:
        raise argparse.ArgumentTypeError(f"{path} is no results file of timm: {error}") from error
    if not rates:
        raise argparse.ArgumentTypeError(
            f"{path} has no column train_samples_per_sec; write it with timm's benchmark.py "
            "--bench train --results-file"
        )
    return rates


def run_in_fresh_process(module: str, *arguments: str) -> float:
    """Returns the number that a module prints last when it is run with these arguments."""
    command = [sys.executable, "-m", module, *arguments]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return float(answer.stdout.splitlines()[-1])


def machine(device: str) -> str:
    """Returns the name of the processor."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def _status_kb(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")
