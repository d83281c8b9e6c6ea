"""The processes that train one model together.

Every process takes the same steps with its part of each batch. Only the first one reads and writes
files; it sends what it reads to the others (`ProcessGroup.broadcast_from_main`), so that all make
the same decisions. The others need no access to the run folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from dml.core.errors import RunStopped, UserError
from dml.training.collectives import GatherRows, all_reduce_sum_, translate_connection_errors

Result = TypeVar("Result")

BUCKET = 2**22  # elements of the gradients that are summed together


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run, as one of them sees them; `SINGLE_PROCESS` for a run of one.

    Attributes:
        rank: of this process, from 0.
        size: number of processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """True for the process that reads, writes and prints."""
        return self.rank == 0

    def broadcast_from_main(self, work: Callable[[], Result]) -> Result:
        """Returns on all processes what `work` returns on the first, which alone calls it.

        Raises:
            UserError: `work` raised an exception; the first process raises that one.
        """
        if self.size == 1:
            return work()
        if not self.is_main:
            result, problem = _broadcast_object(None)
            if problem is not None:
                raise _repeated_error(problem)
            return cast(Result, result)
        try:
            result = work()
        except Exception as error:
            _broadcast_object((None, str(error) or type(error).__name__))
            raise
        _broadcast_object((result, None))
        return result

    def run_on_main(self, work: Callable[[], Result]) -> Result | None:
        """Calls `work` on the first process only; returns None on the others.

        Raises:
            UserError: see `broadcast_from_main`.
        """
        results: list[Result] = []
        self.broadcast_from_main(lambda: results.append(work()))
        return results[0] if results else None

    def run_main_first(self, work: Callable[[], Result]) -> Result:
        """Calls `work` on the first process, then on the others, which find its downloads in place.

        The result of `work` must not be None.
        """
        result = self.run_on_main(work)
        return work() if result is None else result

    def local_slice(self, length: int) -> slice:
        """The part of a list that belongs to this process; all parts in order make up the list."""
        bounds = self._bounds(length)
        return slice(int(bounds[self.rank]), int(bounds[self.rank + 1]))

    def gather(self, rows: Tensor, length: int | None = None) -> Tensor:
        """Returns the rows of all processes in the order of ranks, with gradient.

        Args:
            rows: R×…, of this process.
            length: of a list of which every process passes its `local_slice`; None: all processes
                pass equally many rows.
        """
        if self.size == 1:
            return rows
        if length is None or length % self.size == 0:
            return cast(Tensor, GatherRows.apply(rows))
        return self._gather_uneven(rows, np.diff(self._bounds(length)).tolist())

    def gather_variable(self, rows: Tensor) -> Tensor:
        """As `gather`, for any number of rows per process."""
        if self.size == 1:
            return rows
        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(rows)
        return self._gather_uneven(rows, all_reduce_sum_(sizes).tolist())

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Averages gradients over the processes; parameters without one are left out.

        All processes pass the same parameters. `DataParallelLoss` averages most gradients during
        the backward pass, and the others here.
        """
        if self.size == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        for bucket in _buckets(gradients):
            flat = all_reduce_sum_(torch.cat([gradient.reshape(-1) for gradient in bucket]))
            flat /= self.size
            parts = flat.split([gradient.numel() for gradient in bucket])
            for gradient, part in zip(bucket, parts, strict=True):
                gradient.copy_(part.view(gradient.shape))

    def broadcast_modules(self, *modules: nn.Module) -> None:
        """Copies parameters and buffers of the first process to all others, bit for bit."""
        if self.size > 1:
            with translate_connection_errors():
                for module in modules:
                    for tensor in (*module.parameters(), *module.buffers()):
                        dist.broadcast(tensor.detach(), src=0)

    def share_stop_request(
        self, stop: Callable[[], RunStopped | None]
    ) -> Callable[[], RunStopped | None]:
        """Returns a function that stops all processes at the same step if one is asked to stop.

        The request of a step travels while the next one is computed, and is answered after it.
        """
        if self.size == 1:
            return stop
        sent: tuple[dist.Work, Tensor] | None = None

        def ask() -> RunStopped | None:
            nonlocal sent
            before, request = sent, stop()
            status = torch.tensor([0 if request is None else request.status])
            with translate_connection_errors():
                # on the CPU: the GPU does not wait
                sent = dist.all_reduce(status, dist.ReduceOp.MAX, async_op=True), status
                status_of_all = 0 if before is None else _received(before)
                if not status_of_all:
                    return None
                _received(sent)  # nothing is under way when the processes leave
            return request or RunStopped("stopped with the other processes", status_of_all)

        return ask

    def check_synchronized(self, *modules: nn.Module) -> None:
        """Compares the weights and the random number generators of all processes.

        Raises:
            UserError: they differ, through a hardware fault or a custom loss or method.
        """
        if self.size == 1:
            return
        sums = [p.detach().double().sum().cpu() for module in modules for p in module.parameters()]
        random = torch.get_rng_state().double()
        own = torch.stack([*sums, (random * torch.arange(len(random))).sum()])
        with translate_connection_errors():
            every = own.new_empty(self.size, len(own))
            dist.all_gather_into_tensor(every, own[None])
        equal = (every == every[0]) | (every.isnan() & every[0].isnan())
        if not equal.all():
            other = int((~equal.all(dim=1)).nonzero()[0])
            what = "weights" if not equal[other, :-1].all() else "random numbers"
            raise UserError(
                f"torchrun: the {what} of process {other} are no longer those of process 0; a loss "
                f"or method must do the same on all processes, with random numbers of torch's CPU "
                f"generator; the checkpoint before is intact"
            )

    def _bounds(self, length: int) -> np.ndarray:
        return np.linspace(0, length, self.size + 1).astype(int)

    def _gather_uneven(self, rows: Tensor, sizes: Sequence[int]) -> Tensor:
        padding = rows.new_zeros(max(sizes) - len(rows), *rows.shape[1:])
        padded = cast(Tensor, GatherRows.apply(torch.cat([rows, padding])))
        parts = padded.split(max(sizes))
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


SINGLE_PROCESS = ProcessGroup()


def _broadcast_object(value: Any) -> Any:
    """Sends an object of the first process to all others; returns it."""
    values = [value]
    with translate_connection_errors():
        dist.broadcast_object_list(values, src=0, device=torch.device("cpu"))
    return values[0]


def _received(sent: tuple[dist.Work, Tensor]) -> int:
    """Waits for an asynchronous reduction; returns its result."""
    work, result = sent
    work.wait()
    return int(result)


def _repeated_error(message: str) -> UserError:
    error = UserError(message)
    error.repeated = True
    return error


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yields lists of gradients of one type with about `BUCKET` elements each."""
    for dtype in dict.fromkeys(gradient.dtype for gradient in gradients):
        bucket: list[Tensor] = []
        elements = 0
        for gradient in gradients:
            if gradient.dtype != dtype:
                continue
            bucket.append(gradient)
            elements += gradient.numel()
            if elements >= BUCKET:
                yield bucket
                bucket, elements = [], 0
        if bucket:
            yield bucket
