"""Loading processes: the error when one dies, and the end of Python."""

import atexit
import multiprocessing
import os
import re
import signal
import time

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
    """In a process of its own: torch raises the error at any instruction after the death."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            batches = iterate(DataLoader(Slow(), num_workers=1, prefetch_factor=4))
            others = set(multiprocessing.active_children())
            next(batches)
            (worker,) = set(multiprocessing.active_children()) - others
            os.kill(worker.pid, signal.SIGKILL)
            list(batches)
        except RuntimeError as error:
            found = re.search(f"{DEAD_WORKER}.* killed by signal: Killed", str(error))
            status = 0 if found else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


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
