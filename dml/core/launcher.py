"""Rank of this process in a distributed run, as torchrun or submitit sets it; needs no torch.

Other launchers (plain `srun`, `mpirun`) start unconnected processes: use them to start torchrun.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dml.core.counts import count_of
from dml.core.errors import UserError
from dml.core.secrets import mask_words

# Environment variables: the number of runs of a multirun; options in which parallel ones differ.
SWEEP_SIZE, SWEPT = "DML_SWEEP_SIZE", "DML_SWEPT"


@dataclass(frozen=True)
class Launch:
    """Position of this process among the processes that train one model together.

    Attributes:
        rank: rank among all processes, from 0.
        size: number of processes on all machines.
        local_rank: rank among the `local_size` processes of this machine.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def read_launch() -> Launch:
    """Returns the ranks in the launcher's environment variables; one process without them.

    Raises:
        UserError: a variable, such as one that is left over, is no rank or size.
    """
    if not os.environ.get("RANK") or not os.environ.get("WORLD_SIZE"):
        return Launch()
    size = _read_number("WORLD_SIZE", 1)
    rank = _read_number("RANK", 0)
    if rank >= size:
        raise UserError(
            f"RANK={rank}: not below WORLD_SIZE={size}; for one process unset RANK and WORLD_SIZE"
        )
    local_rank = _read_number("LOCAL_RANK", 0, default=rank)
    return Launch(rank, size, local_rank, _read_number("LOCAL_WORLD_SIZE", 1, default=size))


def _read_number(name: str, lowest: int, default: int = 0) -> int:
    value = os.environ.get(name) or str(default)
    if not value.isdecimal() or int(value) < lowest:
        raise UserError(
            f"{name}={value}: not a whole number from {lowest}; for one process unset RANK and "
            f"WORLD_SIZE"
        )
    return int(value)


def is_torchrun() -> bool:
    """Returns whether torchrun started this process: its variables are not left over."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def check_address() -> None:
    """Checks that the variables say where the processes meet.

    Raises:
        UserError: one is missing.
    """
    size = read_launch().size
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise UserError(
                f"{name}: not set, where WORLD_SIZE is {size}; start the processes by torchrun, or "
                f"for one process unset RANK and WORLD_SIZE"
            )


def describe_wait() -> str | None:
    """Returns what this process waits for if its variables may be left over from a launcher.

    None for a process of torchrun or submitit, which start the others.
    """
    launch = read_launch()
    if launch.size == 1 or is_torchrun() or "SUBMITIT_EXECUTOR" in os.environ:
        return None
    address = os.environ.get("MASTER_ADDR", "")
    port = os.environ.get("MASTER_PORT", "")
    return (
        f"waiting for {count_of(launch.size - 1, 'other process')} at {address}:{port} (WORLD_SIZE="
        f"{launch.size}); for one process unset RANK and WORLD_SIZE"
    )


def export_submitit_ranks() -> None:
    """Connects the tasks of one submitit job (`hydra/launcher=slurm`).

    Sets the environment variables of torchrun if this process is one of several tasks.
    """
    if "SUBMITIT_EXECUTOR" not in os.environ or "RANK" in os.environ:
        return
    import submitit

    if submitit.JobEnvironment().num_tasks > 1:
        # Every process sees all GPUs of its machine and takes the one of its local rank.
        submitit.helpers.TorchDistributedEnvironment().export(set_cuda_visible_devices=False)


@contextmanager
def export_sweep(jobs: Sequence[Sequence[str]], parallel: bool) -> Iterator[None]:
    """Describes a multirun to this process and its child processes.

    Args:
        jobs: overrides of every run.
        parallel: whether several print at once, so that none may redraw a line of the terminal.
    """
    shared = set(jobs[0]).intersection(*jobs)
    swept = {word.partition("=")[0] for job in jobs for word in job if word not in shared}
    before = dict(os.environ)
    os.environ[SWEEP_SIZE] = str(len(jobs))
    os.environ |= {SWEPT: " ".join(swept), "TERM": "dumb"} if parallel else {}
    try:
        yield
    finally:
        for name in (SWEEP_SIZE, SWEPT, "TERM"):
            os.environ.pop(name, None)
            os.environ |= {name: before[name]} if name in before else {}


def sweep_name(words: Sequence[str]) -> str:
    """Returns the overrides of a run in which it differs from the parallel runs of its multirun."""
    swept = os.environ.get(SWEPT, "").split()
    shown = [word for word in words if word.partition("=")[0] in swept]
    return " ".join(mask_words(shown))


def read_sweep_size() -> int:
    """Returns the number of runs of the multirun that started this process; 1 without one."""
    return int(os.environ.get(SWEEP_SIZE, 1))
