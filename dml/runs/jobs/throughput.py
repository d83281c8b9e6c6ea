"""The number of loading processes, and a note on the options that speed up a GPU."""

from __future__ import annotations

import torch

from dml.config.schema import Config
from dml.core.launcher import read_launch
from dml.data.image_index import ImageIndex
from dml.data.loaders import resolve_workers


def loading_processes(config: Config, index: ImageIndex, device: torch.device) -> int:
    """Returns the number of loading processes of each training process of a run."""
    training_processes = max(read_launch().local_size, config.protocol.workers)
    return resolve_workers(config.data.workers, index, device, training_processes)


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
