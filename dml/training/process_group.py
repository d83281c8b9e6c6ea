"""The processes that train one model together, and their communication.

Every process takes the same steps with its part of each batch: it embeds its images and gathers all
embeddings; the method then computes the loss of the whole batch on every process. Gradients are
averaged by torch's DistributedDataParallel, BatchNorm statistics by its SyncBatchNorm. Only the
first process reads and writes files; it broadcasts their content
(`ProcessGroup.broadcast_from_main`), so that all make the same decisions. The others need no access
to the run folder.

On n processes with the same loss L, autograd differentiates the sum of their losses, nL: the
gradient of any parameter, summed over the processes, is n times the gradient of L, and its average
is the gradient of a single process. This holds for parameters before and after a gather, because
its backward pass returns the sum of the gradients of all processes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from dml.core.errors import RunStopped, UserError, first_line, refuse_exits
from dml.core.launcher import check_address, describe_wait, read_launch
from dml.core.plain_text import print_plain
from dml.training.heartbeats import Heartbeats
from dml.training.main_work import MainWork

Result = TypeVar("Result")

STOP_EVERY = 5  # steps between two checks whether a process should stop
# For a process or machine that hangs; the end of a process is detected at once. The work of the
# first process may take longer (`MainWork`).
TIMEOUT = timedelta(minutes=15)

_store: dist.Store | None = None  # the launcher's store, opened once per process
_runs = count()


@contextmanager
def translate_connection_errors() -> Iterator[None]:
    """Converts the failure of a collective operation to an error message for users.

    Raises:
        UserError: another process of the run has ended or cannot be reached.
    """
    try:
        yield
    except RuntimeError as error:
        # Errors of gloo, also in DistributedDataParallel, have no specific class.
        if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        reason = first_line(error).rsplit("] ", 1)[-1].partition(". ")[0]
        raise UserError(
            f"torchrun: process {dist.get_rank()} lost contact with another of "
            f"{dist.get_world_size()}, which ended or was killed ({reason}); the last checkpoint "
            f"is intact, and the same command continues from it with any number of processes"
        ) from error


class _GatherRows(torch.autograd.Function):
    """Gathers rows B×… of n processes into nB×…, in the order of ranks."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        gathered = rows.new_empty(dist.get_world_size() * len(rows), *rows.shape[1:])
        with translate_connection_errors():
            dist.all_gather_into_tensor(gathered, rows.contiguous())
        return gathered

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """Returns the sum of the gradients of this process's rows."""
        local = gradient.new_empty(len(gradient) // dist.get_world_size(), *gradient.shape[1:])
        with translate_connection_errors():
            dist.reduce_scatter_tensor(local, gradient.contiguous())
        return local


@dataclass(frozen=True)
class ProcessGroup:
    """The process group of a run; `SINGLE_PROCESS` if there is only one process.

    Attributes:
        rank: rank of this process, from 0.
        size: number of processes.
        main_work: by which the others wait for the first process for as long as that works; None:
            no longer than a collective operation waits.
    """

    rank: int = 0
    size: int = 1
    main_work: MainWork | None = field(default=None, compare=False)

    @property
    def is_main(self) -> bool:
        """True for the process that reads, writes and prints."""
        return self.rank == 0

    def broadcast_from_main(self, work: Callable[[], Result]) -> Result:
        """Calls `work` on the first process only, and returns its result on all processes.

        Raises:
            UserError: `work` raised an exception, which the first process raises unchanged.
        """
        if self.size == 1:
            return work()
        sent: list[Any] = [None, None]  # result, problem
        error = None
        if self.is_main:
            try:
                with refuse_exits():
                    sent[0] = work()
            except Exception as raised:
                error, sent[1] = raised, str(raised) or type(raised).__name__
        with translate_connection_errors():
            if self.main_work is not None:
                self.main_work.end(self.is_main)
            dist.broadcast_object_list(sent, src=0, device=torch.device("cpu"))
        if error is not None:
            raise error
        if sent[1] is not None:
            repeated = UserError(sent[1])
            repeated.repeated = True
            raise repeated
        return cast(Result, sent[0])

    def run_on_main(self, work: Callable[[], Result]) -> Result | None:
        """Calls `work` on the first process only; returns None on the others.

        Raises:
            UserError: see `broadcast_from_main`.
        """
        results: list[Result] = []
        self.broadcast_from_main(lambda: results.append(work()))
        return results[0] if results else None

    def run_main_first(self, work: Callable[[], Result]) -> Result:
        """Calls `work` on the first process, then on the others, which use its downloads.

        The result of `work` must not be None.
        """
        result = self.run_on_main(work)
        return work() if result is None else result

    def local_slice(self, length: int) -> slice:
        """Returns this process's part of a list; the parts of all ranks in order are the list."""
        bounds = self._bounds(length)
        return slice(int(bounds[self.rank]), int(bounds[self.rank + 1]))

    def gather(self, rows: Tensor, length: int | None = None) -> Tensor:
        """Returns the rows of all processes in the order of ranks, with gradients.

        Args:
            rows: rows of this process, R×….
            length: total number of rows, of which every process passes its `local_slice`; None: all
                processes pass equally many rows.
        """
        if self.size == 1:
            return rows
        if length is None or length % self.size == 0:
            return cast(Tensor, _GatherRows.apply(rows))
        return self._gather_uneven(rows, np.diff(self._bounds(length)).tolist())

    def gather_on_main(self, rows: Tensor, length: int) -> Tensor:
        """Returns the rows of all processes on the first one, and no rows (0×…) on the others.

        Args:
            rows: rows of this process, those of its `local_slice`, without a gradient.
            length: total number of rows.
        """
        if self.size == 1:
            return rows
        sizes = np.diff(self._bounds(length)).tolist()
        shape = max(sizes), *rows.shape[1:]
        padding = rows.new_zeros(shape[0] - len(rows), *shape[1:])
        parts = None
        every = rows.new_empty(0, *shape[1:])
        if self.is_main:
            every = rows.new_empty(self.size * shape[0], *shape[1:])
            parts = list(every.split(shape[0]))
        with translate_connection_errors():
            dist.gather(torch.cat([rows, padding]).contiguous(), parts)
        if parts is None:
            return every
        # In place: two copies of all rows may not fit
        end = 0
        for part, size in zip(parts, sizes, strict=True):
            every[end : end + size] = part[:size].clone()
            end += size
        return every[:length]

    def gather_variable(self, rows: Tensor) -> Tensor:
        """Returns the rows of all processes as `gather`, for any number of rows per process."""
        if self.size == 1:
            return rows
        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(rows)
        with translate_connection_errors():
            dist.all_reduce(sizes)
        return self._gather_uneven(rows, sizes.tolist())

    def share_stop_request(
        self, stop: Callable[[], RunStopped | None]
    ) -> Callable[[], RunStopped | None]:
        """Returns a function that stops all processes at the same step if one of them should stop.

        It must be called after every step; every few steps the processes communicate, on the CPU.
        """
        if self.size == 1:
            return stop
        calls = count(1)

        def ask() -> RunStopped | None:
            if next(calls) % STOP_EVERY:
                return None
            request = stop()
            status = torch.tensor(0 if request is None else request.status)
            with translate_connection_errors():
                dist.all_reduce(status, dist.ReduceOp.MAX)
            if not status:
                return None
            return request or RunStopped("stopped with the other processes", int(status))

        return ask

    def _bounds(self, length: int) -> np.ndarray:
        return np.linspace(0, length, self.size + 1).astype(int)

    def _gather_uneven(self, rows: Tensor, sizes: Sequence[int]) -> Tensor:
        padding = rows.new_zeros(max(sizes) - len(rows), *rows.shape[1:])
        padded = cast(Tensor, _GatherRows.apply(torch.cat([rows, padding])))
        parts = padded.split(max(sizes))
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


SINGLE_PROCESS = ProcessGroup()


@contextmanager
def distributed_session(device: str, timeout: timedelta | None = None) -> Iterator[ProcessGroup]:
    """Connects the processes that the launcher started, for one run.

    After a failed run, the next run of a multirun connects again.

    Args:
        device: the option `device`, which determines the backend.
        timeout: for a process or machine that hangs; None: `TIMEOUT`.

    Raises:
        UserError: the other processes cannot be reached.
    """
    global _store
    launch = read_launch()
    if launch.size == 1:
        yield SINGLE_PROCESS
        return
    timeout = timeout or TIMEOUT
    rank, size = launch.rank, launch.size
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    check_address()
    waiting = describe_wait()
    if waiting is not None:
        print_plain(f"note: {waiting}", file=sys.stderr, flush=True)
    try:
        if _store is None:
            _store = next(dist.rendezvous("env://", rank, size, timeout=timeout))[0]
        # The store still contains the entries of earlier runs of a multirun.
        store = dist.PrefixStore(f"run{next(_runs)}", _store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"torchrun: process {rank} cannot reach the other {size - 1}: {first_line(error)}"
        ) from error
    limit = f"after {timeout.total_seconds() / 60:.0f} minutes it ends by itself"
    try:
        heartbeats = Heartbeats(store, rank, size, limit)
        with heartbeats.running():
            yield ProcessGroup(rank, size, MainWork(store, heartbeats.silent_seconds))
        with translate_connection_errors():
            dist.barrier()  # no process disconnects while another one still needs it
    finally:
        dist.destroy_process_group()
