"""Whether the processes of a run can talk to each other: of this machine, or of torchrun."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch

from dml.cli.machine.outcome import Outcome
from dml.core.errors import UserError, first_line
from dml.runs.workers import without_ctrl_c
from dml.training.device import resolve_device
from dml.training.process_group import ProcessGroup, distributed_session

START = "spawn"  # a forked process cannot use CUDA
LIMIT_SECONDS = 60.0  # from the start of processes to their answers
MOST = 8  # processes
TIMED_BYTES = 16 << 20  # of the tensor whose sum is timed
REMEDIES = {
    "gloo": "set GLOO_SOCKET_IFNAME=<network interface> (lo on one machine)",
    "NCCL": "NCCL_DEBUG=INFO shows why; try NCCL_P2P_DISABLE=1 or NCCL_SOCKET_IFNAME=<interface>",
}


def backend_name(device: str) -> str:
    """Returns the library that carries the tensors of a device, `cpu` or `cuda`."""
    return "NCCL" if device == "cuda" else "gloo"


def try_processes() -> Outcome:
    """Starts two processes, or one for each GPU if there are several, which exchange tensors."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = "cuda" if gpus > 1 else "cpu"
    count = min(MOST, max(2, gpus if device == "cuda" else 2))
    variables = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "TORCHELASTIC_RUN_ID": "check",  # started by a launcher, not left over
    }
    with start_processes(_join, [(rank, variables, device) for rank in range(count)]) as answers:
        end = time.monotonic() + LIMIT_SECONDS
        texts = [receive(answer, max(0.0, end - time.monotonic())) for answer in answers]
    return _judge(texts, device)


def exchange_in(world: ProcessGroup, device: str) -> Outcome:
    """Exchanges tensors between the processes of torchrun; each of them must call this.

    Args:
        world: of `distributed_session`.
        device: `cpu` or `cuda`.
    """
    text = _try_exchange(world, device)
    texts: list[Any] = [None] * world.size
    torch.distributed.all_gather_object(texts, text)
    return _judge(texts, device)


def _judge(texts: list[str], device: str) -> Outcome:
    """Returns the outcome of answers: seconds of a sum, or a problem."""
    library = backend_name(device)
    for text in texts:
        if not text.replace(".", "", 1).isdecimal():
            return Outcome(f"{library}: {text}", REMEDIES[library], works=False)
    seconds = max(float(text) for text in texts)
    speed = TIMED_BYTES / max(seconds, 1e-9) / 1e9
    return Outcome(f"{library} between {len(texts)} processes, sums of {speed:.2f} GB/s")


def _try_exchange(world: ProcessGroup, device: str) -> str:
    """Returns the seconds of a sum over all processes as a text, or a problem."""
    placed = resolve_device(device, world)
    rows = torch.full((2, 3), float(world.rank), device=placed, requires_grad=True)
    gathered = world.gather(rows)
    gathered.sum().backward()
    expected = torch.arange(world.size).repeat_interleave(2).float()
    if not torch.equal(gathered[:, 0].detach().cpu(), expected):
        return "rows that were gathered are wrong"
    if rows.grad is None or not torch.equal(rows.grad.cpu(), torch.full((2, 3), float(world.size))):
        return "gradients of gathered rows are wrong"
    if world.broadcast_from_main(lambda: "sent") != "sent":
        return "a text that was sent is wrong"
    values = torch.ones(TIMED_BYTES // 4, device=placed)
    torch.distributed.all_reduce(values)  # the first one connects
    start = time.perf_counter()
    torch.distributed.all_reduce(values)
    total = float(values[-1])  # waits for the GPU
    seconds = time.perf_counter() - start
    if total != world.size**2:
        return "sums are wrong"
    return f"{seconds:.6f}"


def _join(answer: Connection, rank: int, variables: dict[str, str], device: str) -> None:
    """Joins the other processes and sends the answer of `_try_exchange`."""
    os.environ |= {**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}
    try:
        with distributed_session(device, timedelta(seconds=LIMIT_SECONDS)) as world:
            answer.send(_try_exchange(world, device))
    except Exception as error:  # of torch and of the libraries below it
        answer.send(first_line(error))


@contextmanager
def start_processes(
    target: Callable[..., None], arguments: list[tuple[Any, ...]]
) -> Iterator[list[Connection]]:
    """Starts processes of `target(connection, …)`; yields a connection to each, and ends them all.

    Args:
        target: function of a module.
        arguments: after the connection, of each process.
    """
    context = multiprocessing.get_context(START)
    processes, connections = [], []
    try:
        for values in arguments:
            ours, theirs = context.Pipe()
            process: Any = context.Process(target=target, args=(theirs, *values), daemon=True)  # type: ignore[attr-defined]
            with without_ctrl_c():
                process.start()
            theirs.close()
            processes.append(process)
            connections.append(ours)
        yield connections
    finally:
        for process, connection in zip(processes, connections, strict=False):
            process.kill()
            process.join()
            connection.close()


def receive(connection: Connection, seconds: float) -> Any:
    """Returns what a process sends.

    Raises:
        UserError: it ends without an answer, or does not answer in time.
    """
    if not connection.poll(seconds):
        raise UserError("a process does not answer")
    try:
        return connection.recv()
    except EOFError as error:
        raise UserError("a process has ended without an answer") from error


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
