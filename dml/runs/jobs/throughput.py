"""A hint if training waits for its images, and one on the options that speed up a GPU."""

from __future__ import annotations

import torch

from dml.config.schema import Config
from dml.core.launcher import read_launch
from dml.data.image_index import ImageIndex
from dml.data.loading_processes import resolve_workers
from dml.runs.console import print_line
from dml.training.clock import TimeSpent

# Shorter waits are not reported: small runs, and runs that read their first images.
WAITING_SHARE = 0.3
WAITING_SECONDS = 20.0


class LoaderHint:
    """Reports once per run that the loader is the bottleneck, and which option helps.

    Args:
        config: of the run.
    """

    def __init__(self, config: Config) -> None:
        self.options = [f"more than data.workers={config.data.workers}"]
        if config.data.cache is None:
            self.options.append("data.cache=full (in a new run)")
        self.reported = False

    def check(self, spent: TimeSpent) -> None:
        """Reports a slow loader, given the time spent in this process so far."""
        bottleneck = spent.waiting_share > WAITING_SHARE and spent.waiting >= WAITING_SECONDS
        if self.reported or not bottleneck:
            return
        self.reported = True
        print_line(
            f"note: data: training waited for images {spent.waiting:.0f} of {spent.seconds:.0f} s "
            f"({100 * spent.waiting_share:.0f} %); {' or '.join(self.options)} loads them faster"
        )


def loading_processes(config: Config, index: ImageIndex, device: torch.device) -> int:
    """Returns the number of loading processes of each training process of a run."""
    return resolve_workers(config.data.workers, index, device, _training_processes(config))


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
