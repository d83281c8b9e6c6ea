"""Time, memory and waits of steps that are compared, and the processes that they run in."""

from __future__ import annotations

import multiprocessing
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import TypeVar

import torch

from dml.core.processor import processor_name

Step = Callable[[], object]
K = TypeVar("K")
V = TypeVar("V")
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def in_turns(measures: Mapping[K, Callable[[], V]], rounds: int) -> dict[K, list[V]]:
    """Returns what each measure returns in each round, in which they take turns."""
    results: dict[K, list[V]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            results[name].append(measure())
    return results


def seconds(step: Step) -> float:
    """Returns the time that a step takes."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def median_times(steps: Mapping[str, Step], rounds: int) -> dict[str, float]:
    """Returns the median milliseconds of each step over interleaved rounds, after a warm-up."""
    measures = {name: lambda step=step: 1e3 * seconds(step) for name, step in steps.items()}
    in_turns(measures, 1)
    return {name: median(times) for name, times in in_turns(measures, rounds).items()}


def median_ratio(values: Sequence[float], base: Sequence[float]) -> float:
    """Returns the median of the ratios of the same rounds."""
    return median(value / other for value, other in zip(values, base, strict=True))


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


def resident_mb() -> float:
    """Returns the MB that this process holds."""
    return _status_kb("VmRSS") / 1024


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


def in_fresh_process(measure: Callable[..., V], *arguments: object) -> V:
    """Returns what a function of a module returns in a process that has computed nothing yet."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, *arguments).result()


def machine(device: str) -> str:
    """Returns the name of the processor."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return processor_name()


def _status_kb(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")
