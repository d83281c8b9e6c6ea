"""The rows of `throughput.csv`, and a hint if training waits for its images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from dml.config.schema import Config
from dml.core.launcher import read_launch
from dml.data.image_index import ImageIndex
from dml.data.loading_processes import resolve_workers, usable_workers
from dml.runs.console import print_line
from dml.tracking import History
from dml.training.clock import StepClock, TimeSpent
from dml.training.device import peak_memory_mb

# Shorter waits are not reported: small runs, and runs that read their first images.
WAITING_SHARE = 0.3
WAITING_SECONDS = 20.0
MOST_WORKERS = 16  # that the hint names


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
        self.remedy = find_remedy(config, index, device)
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


def loading_processes(config: Config, index: ImageIndex, device: torch.device) -> int:
    """Returns the number of loading processes of each training process of a run."""
    return resolve_workers(config.data.workers, index, device, _training_processes(config))


def find_remedy(config: Config, index: ImageIndex, device: torch.device) -> str | None:
    """Returns the option that loads the same images faster; None if there is none.

    Args:
        config: of the run.
        index: its dataset.
        device: of the network.
    """
    data, kept = config.data, config.transform.resize
    workers = usable_workers(_training_processes(config), MOST_WORKERS)
    now = loading_processes(config, index, device)
    if now < workers:
        return (
            f"data.workers={workers} loads by as many processes ({now} now); stop, and "
            f"type the command again with it: the run continues"
        )
    if data.cache is None and not isinstance(index.images, np.ndarray):
        # Crops are cut from the smaller images anyway: training stays the same.
        smaller = kept is not None and (config.test_resize or np.inf) <= kept
        cache = kept if smaller else "full"
        return f"data.cache={cache} decodes every image only once, in runs started with it"
    return None


def speed_note(config: Config, device: torch.device) -> str | None:
    """Returns a note on the options that are worth most on a GPU; None if one of them is set.

    Stand-in data are made for CPUs: there is no note on them.
    """
    chosen = config.channels_last or config.compile or config.data.cache is not None
    if device.type != "cuda" or config.data.stand_in or config.precision != "fp32" or chosen:
        return None
    return (
        "device: a GPU trains faster with precision=bf16 or tf32 (rounds differently: a run of its "
        "own), channels_last=true, data.cache=full or compile=true; none of them is set"
    )


def _training_processes(config: Config) -> int:
    return max(read_launch().local_size, config.protocol.workers)


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
