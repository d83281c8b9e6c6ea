"""Loading processes: the error when one dies, and the end of Python."""

import atexit
import gc
import multiprocessing
import os
import signal
import time

import pytest
from torch.utils.data import DataLoader, Dataset

from dml.data.loading_processes import DEAD_WORKER, iterate, prepare_process


class Slow(Dataset):
    """Rows whose last one takes a minute."""

    def __len__(self):
        return 4

    def __getitem__(self, row):
        time.sleep(60 * (row == 3))
        return row


def test_a_death_is_an_error_that_names_the_worker():
    gc.collect()
    others = set(multiprocessing.active_children())
    batches = iterate(DataLoader(Slow(), num_workers=1, prefetch_factor=4))
    assert next(batches).item() == 0
    (worker,) = set(multiprocessing.active_children()) - others

    def kill_and_wait():  # the error is raised at any instruction after the death
        os.kill(worker.pid, signal.SIGKILL)
        list(batches)

    with pytest.raises(RuntimeError, match=f"{DEAD_WORKER}.* killed by signal: Killed"):
        kill_and_wait()


def test_the_end_of_python_waits_for_no_process():
    """Of a loader that something keeps, as `sys.last_traceback` does in an interactive session."""
    child = os.fork()
    if child == 0:
        try:
            batches = iterate(DataLoader(Slow(), num_workers=1, worker_init_fn=prepare_process))
            next(batches)
            atexit._run_exitfuncs()
        finally:
            os._exit(0)
    end = time.monotonic() + 30
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        assert time.monotonic() < end
        time.sleep(0.1)
