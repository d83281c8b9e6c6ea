"""The rows of `throughput.csv`, and a hint if training waits for its images."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import torch

from dml.config.schema import Config
from dml.core.launcher import read_launch
from dml.data.image_index import ImageIndex
from dml.runs.console import print_line
from dml.tracking import History
from dml.training.clock import StepClock, TimeSpent
from dml.training.peak_memory import peak_memory_mb

# Shorter waits are not reported: small runs, and runs that read their first images.
WAITING_SHARE = 0.3
WAITING_SECONDS = 20.0
MAX_WORKERS = 16  # more need memory and files, and wait for the same disk


class LoaderHint:
    """Reports once per run that the loader is the bottleneck, and which option helps.

    Args:
        config: of the run.
        index: its dataset.
        device: of the network.
        report: prints one line for the user.
    """

    def __init__(
        self,
        config: Config,
        index: ImageIndex,
        device: torch.device,
        report: Callable[[str], None] = print_line,
    ) -> None:
        self.remedy = find_remedy(config, isinstance(index.images, np.ndarray), device)
        self.report, self.reported = report, False

    def check(self, spent: TimeSpent) -> None:
        """Reports a slow loader, given the time spent in this process so far."""
        bottleneck = spent.waiting_share > WAITING_SHARE and spent.waiting >= WAITING_SECONDS
        if self.reported or not bottleneck or self.remedy is None:
            return
        self.reported = True
        self.report(
            f"note: data: training waited for images {spent.waiting:.0f} of {spent.seconds:.0f} s "
            f"({100 * spent.waiting_share:.0f} %); {self.remedy}"
        )


def find_remedy(config: Config, in_memory: bool, device: torch.device) -> str | None:
    """Returns the option that loads the same images faster; None if there is none.

    Args:
        config: of the run.
        in_memory: whether the dataset is decoded in memory.
        device: of the network.
    """
    data, kept = config.data, config.transform.resize
    on_gpu = device.type == "cuda" and data.cache_device.startswith("cuda")
    workers = usable_workers(config)
    if on_gpu:
        return None
    if data.workers < workers:
        return (
            f"data.workers={workers} loads by as many processes ({data.workers} now); stop, and "
            f"type the command again with it: the run continues"
        )
    if data.cache is None and not in_memory:
        # Crops are cut from the smaller images anyway: training stays the same.
        smaller = kept is not None and (config.test_resize or np.inf) <= kept
        cache = kept if smaller else "full"
        return f"data.cache={cache} decodes every image only once, in runs started with it"
    if device.type == "cuda":
        return "data.cache_device=cuda cuts images on the GPU; the run continues with it"
    return None


def usable_workers(config: Config) -> int:
    """Loading processes for each training process of this machine, one for each of its CPUs."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = max(read_launch().local_size, config.protocol.workers)
    return max(1, min(MAX_WORKERS, cpus // processes))


class ThroughputLog:
    """Adds a row per evaluation interval of one model; called by the trainer.

    Args:
        table: `throughput.csv`.
        job: (repeat, fold).
        batch_size: images of a step, of all processes.
        device: whose peak memory is logged.
        hint: receives the time spent.
    """

    def __init__(
        self,
        table: History,
        job: tuple[int, int],
        batch_size: int,
        device: torch.device,
        hint: LoaderHint,
    ) -> None:
        self.table, self.job, self.batch_size = table, job, batch_size
        self.device, self.hint = device, hint

    def __call__(self, epoch: float, step: int, clock: StepClock) -> None:
        """Adds the row of the clock's interval, which ends here."""
        spent = clock.lap()
        self.table.append(
            {
                "repeat": self.job[0],
                "fold": self.job[1],
                "epoch": epoch,
                "step": step,
                "images_per_second": round(spent.images_per_second(self.batch_size), 1),
                "waiting_share": round(spent.waiting_share, 4),
                "peak_memory_mb": round(peak_memory_mb(self.device), 1),
            }
        )
        self.hint.check(clock.in_process)
