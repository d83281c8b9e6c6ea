"""The device of a run, the precision of its network, and its peak memory.

The option `precision` can be `fp32`, float32 throughout, unlike torch's default of TF32 for
convolutions on GPUs; `tf32`, TF32 in all convolutions and float32 matrix products, including those
of losses (10 bits of each factor); or `bf16`, the network under autocast. Evaluation always uses
full float32 products of embeddings (`dml.retrieval`).

`torch.backends.cudnn.benchmark` stays off: kernels chosen by timing could differ in a resumed run,
which then would no longer equal an uninterrupted run bit for bit.
"""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

import torch

from dml.core.counts import count_of
from dml.core.errors import UserError
from dml.core.launcher import read_launch
from dml.core.processor import processor_name
from dml.training.process_group import SINGLE_PROCESS, ProcessGroup


def resolve_device(name: str, world: ProcessGroup = SINGLE_PROCESS) -> torch.device:
    """Returns the device for the option `device`; each of several processes gets a different GPU.

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
            f"torchrun: {launch.local_size} processes on a machine, each with {gpus} visible GPUs; "
            f"use --nproc-per-node={gpus}, with SLURM gpus_per_node instead of gpus_per_task"
        )
    torch.cuda.set_device(launch.local_rank)
    return torch.device("cuda", launch.local_rank)


def set_precision(precision: str, device: torch.device) -> None:
    """Sets the precision of float32 convolutions and matrix products for this process.

    Raises:
        UserError: `tf32` without a GPU.
    """
    if precision == "tf32" and device.type != "cuda":
        raise UserError("precision: tf32 needs a GPU, and this run has none; use fp32")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


def autocast(precision: str, device: torch.device) -> torch.autocast:
    """Returns the context for the network: torch's autocast to bfloat16, or none."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def device_name(device: torch.device) -> str:
    """Returns the name of the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({processor_name()}, {count_of(torch.get_num_threads(), 'thread')})"


def peak_memory_mb(device: torch.device) -> float:
    """Returns the peak memory of this process in MB, on the GPU or else in main memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    # On Linux, `ru_maxrss` includes the parent process at the start; VmHWM does not.
    status = Path("/proc/self/status")
    if status.exists() and (peak := re.search(r"VmHWM:\s*(\d+) kB", status.read_text())):
        return int(peak[1]) / 2**10
    peak_size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak_size / (2**20 if sys.platform == "darwin" else 2**10)
