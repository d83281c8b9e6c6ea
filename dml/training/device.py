"""The device of a run."""

from __future__ import annotations

import torch

from dml.core.errors import UserError
from dml.core.launcher import read_launch
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup


def resolve_device(name: str, world: ProcessGroup = SINGLE_PROCESS) -> torch.device:
    """Returns the device of the option `device`; each of several processes gets its own GPU.

    Args:
        name: `cpu`, `cuda`, `cuda:<number>`, or `auto` for the GPU if there is one.
        world: the processes of the run.

    Raises:
        UserError: the machine has fewer GPUs than processes.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if world.size == 1 or name == "cpu":
        return torch.device(name)
    launch, gpus = read_launch(), torch.cuda.device_count()
    if launch.local_rank >= gpus:
        raise UserError(
            f"torchrun: {launch.local_size} processes on a machine of which each sees {gpus} GPUs; "
            f"use --nproc-per-node={gpus}, with SLURM gpus_per_node instead of gpus_per_task"
        )
    torch.cuda.set_device(launch.local_rank)
    return torch.device("cuda", launch.local_rank)
