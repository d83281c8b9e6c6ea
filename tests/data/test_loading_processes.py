"""Loading processes: their number, and that their death is raised where a batch is awaited."""

import multiprocessing
import os
import signal
import threading
import time

import pytest
from torch.utils.data import DataLoader, Dataset

from dml.data.loading_processes import DEAD_WORKER, iterate


class Slow(Dataset):
    """Rows whose last one takes a minute, in which its worker holds no lock of the others."""

    def __len__(self):
        return 4

    def __getitem__(self, row):
        time.sleep(60 * (row == 3))
        return row


def kill_worker():
    time.sleep(1)  # until it has begun with the last row
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)


def await_death():
    """Gives the system time to report it, in which any instruction could be interrupted."""
    end = time.monotonic() + 1
    while time.monotonic() < end:
        threading.Lock()


def test_a_death_is_held_back_until_the_next_batch():
    batches = iterate(DataLoader(Slow(), num_workers=1, prefetch_factor=4))
    assert next(batches).item() == 0
    kill_worker()
    await_death()
    with pytest.raises(RuntimeError, match=f"{DEAD_WORKER}.* killed by signal: Killed"):
        list(batches)


def test_a_death_is_raised_while_a_batch_is_awaited():
    batches = iterate(DataLoader(Slow(), num_workers=1, prefetch_factor=4))
    assert [next(batches).item() for _ in range(3)] == [0, 1, 2]
    threading.Thread(target=kill_worker).start()
    start = time.monotonic()
    with pytest.raises(RuntimeError, match=f"{DEAD_WORKER}.* killed by signal: Killed"):
        next(batches)
    assert time.monotonic() - start < 30
