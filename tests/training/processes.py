"""Two forked processes on the CPU for one function, with an end to every wait."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from tests import forked

LIMIT_SECONDS = 600.0  # of all; less than a minute where nothing else runs


def in_two_processes(work: Callable[[], Any], folder: Path) -> list[Any]:
    """What `work` returns (JSON) in each of two processes that torchrun might have started.

    Args:
        work: computes it.
        folder: for what they write and print.
    """
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    processes = [
        forked.context().Process(target=_begin, args=(rank, port, work, folder))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    end = time.monotonic() + LIMIT_SECONDS
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    logs = [(folder / f"{rank}.log").read_text() for rank in range(2)]
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join()
    assert [process.exitcode for process in processes] == [0, 0], "\n".join(logs)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def _begin(rank: int, port: int, work: Callable[[], Any], folder: Path) -> None:
    log = os.open(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(address | {"RANK": str(rank), "WORLD_SIZE": "2", "OUT": str(folder)})
    torch.set_num_threads(1)
    from dml.training import process_group as joining

    joining.TIMEOUT = timedelta(seconds=60)
    result = work()
    (folder / f"{rank}.json").write_text(json.dumps(result))
