"""Several processes that train one model: what they share, and what only the first one does.

Every process goes through the same steps with its share of each batch. Files, tables and pictures
are the first one's business; what it reads or finds it tells the others (`World.on_main`), so that
all decide alike. The others need no access to the run folder.
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
from dml.training.collectives import AllGather, all_sum_, contact

Result = TypeVar("Result")

BUCKET = 2**22  # gradients that travel together, in numbers


@dataclass(frozen=True)
class World:
    """The processes of a run, seen from one of them; `ALONE` where there is only this one.

    Attributes:
        rank: of this process, from 0.
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that reads, writes and talks."""
        return self.rank == 0

    def on_main(self, work: Callable[[], Result]) -> Result:
        """What `work` returns on the first process, on all of them; the others do not call it.

        Raises:
            UserError: `work` raised an exception; the first process raises that one.
        """
        if self.size == 1:
            return work()
        if not self.is_main:
            outcome: list[Any] = [None]
            with contact():
                dist.broadcast_object_list(outcome, src=0, device=torch.device("cpu"))
            result, problem = outcome[0]
            if problem is not None:
                raise _repeated(problem)
            return cast(Result, result)
        try:
            result = work()
        except Exception as error:
            problem = str(error) or type(error).__name__
            with contact():
                dist.broadcast_object_list([(None, problem)], src=0, device=torch.device("cpu"))
            raise
        with contact():
            dist.broadcast_object_list([(result, None)], src=0, device=torch.device("cpu"))
        return result

    def main_only(self, work: Callable[[], Result]) -> Result | None:
        """What `work` returns on the first process, and None on the others, which do not call it.

        Raises:
            UserError: as in `on_main`.
        """
        kept: list[Result] = []
        self.on_main(lambda: kept.append(work()))
        return kept[0] if kept else None

    def main_first(self, work: Callable[[], Result]) -> Result:
        """What `work`, which is not None, returns; what it downloads, the others find in place."""
        found = self.main_only(work)
        return work() if found is None else found

    def share(self, length: int) -> slice:
        """This process's part of a list; those of all, one after the other, are the list."""
        cuts = self._cuts(length)
        return slice(int(cuts[self.rank]), int(cuts[self.rank + 1]))

    def gather(self, rows: Tensor, length: int | None = None) -> Tensor:
        """The rows of all processes in the order of ranks, on all of them, with gradient.

        Args:
            rows: R×…, of this process.
            length: of a list whose `share` every process brings; None: all bring equally many.
        """
        if self.size == 1:
            return rows
        if length is None or length % self.size == 0:
            return cast(Tensor, AllGather.apply(rows))
        return self._gather_uneven(rows, np.diff(self._cuts(length)).tolist())

    def gather_any(self, rows: Tensor) -> Tensor:
        """As `gather`, where processes do not know how many rows the others bring."""
        if self.size == 1:
            return rows
        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(rows)
        return self._gather_uneven(rows, all_sum_(sizes).tolist())

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Leaves every process with the gradients that one would have (see `collectives`).

        One sum over a few large buffers instead of DistributedDataParallel: methods call parts of
        the network one by one and more than once in a step, the backbone rests in warm-ups, and
        loss parameters take part. What that forgoes is sending while the backward pass still runs.
        """
        if self.size == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        for bucket in _buckets(gradients):
            flat = all_sum_(torch.cat([gradient.reshape(-1) for gradient in bucket]))
            flat /= self.size
            parts = flat.split([gradient.numel() for gradient in bucket])
            for gradient, part in zip(bucket, parts, strict=True):
                gradient.copy_(part.view(gradient.shape))

    def copy_from_main(self, *modules: nn.Module) -> None:
        """Gives all processes the first one's parameters and buffers, bit for bit."""
        if self.size > 1:
            with contact():
                for module in modules:
                    for tensor in (*module.parameters(), *module.buffers()):
                        dist.broadcast(tensor.detach(), src=0)

    def agreed(self, stop: Callable[[], RunStopped | None]) -> Callable[[], RunStopped | None]:
        """Lets all processes stop at the same step as soon as one of them is asked to."""
        if self.size == 1:
            return stop

        def ask() -> RunStopped | None:
            request = stop()
            status = torch.tensor([0 if request is None else request.status])
            with contact():
                dist.all_reduce(status, dist.ReduceOp.MAX)  # on the CPU: the GPU does not wait
            if not int(status):
                return None
            return request or RunStopped("stopped with the other processes", int(status))

        return ask

    def check_in_step(self, *modules: nn.Module) -> None:
        """Refuses to go on with processes whose weights or random numbers differ.

        Raises:
            UserError: they do, by a fault of a machine or of a loss or method of one's own.
        """
        if self.size == 1:
            return
        sums = [p.detach().double().sum().cpu() for module in modules for p in module.parameters()]
        random = torch.get_rng_state().double()
        own = torch.stack([*sums, (random * torch.arange(len(random))).sum()])
        with contact():
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

    def _cuts(self, length: int) -> np.ndarray:
        return np.linspace(0, length, self.size + 1).astype(int)

    def _gather_uneven(self, rows: Tensor, sizes: Sequence[int]) -> Tensor:
        padding = rows.new_zeros(max(sizes) - len(rows), *rows.shape[1:])
        padded = cast(Tensor, AllGather.apply(torch.cat([rows, padding])))
        parts = padded.split(max(sizes))
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


ALONE = World()


def _repeated(message: str) -> UserError:
    error = UserError(message)
    error.repeated = True
    return error


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Lists of gradients of one type with about `BUCKET` numbers each."""
    for dtype in dict.fromkeys(gradient.dtype for gradient in gradients):
        bucket: list[Tensor] = []
        numbers = 0
        for gradient in gradients:
            if gradient.dtype != dtype:
                continue
            bucket.append(gradient)
            numbers += gradient.numel()
            if numbers >= BUCKET:
                yield bucket
                bucket, numbers = [], 0
        if bucket:
            yield bucket
