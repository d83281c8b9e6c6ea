"""Loading processes: their number, and that their death is raised where a batch is awaited."""

import atexit
import gc
import multiprocessing
import os
import resource
import signal
import threading
import time

import pytest
from torch.utils.data import DataLoader, Dataset

from dml.core.errors import UserError
from dml.data import loading_processes
from dml.data.loading_processes import DEAD_WORKER, iterate, prepare_process


class Slow(Dataset):
    """Rows whose last one takes a minute.

    A worker that is killed or stopped during that minute holds no lock that torch's loader needs.
    """

    def __len__(self):
        return 4

    def __getitem__(self, row):
        time.sleep(60 * (row == 3))
        return row


@pytest.fixture
def others():
    """Processes of other tests' loaders that are still running."""
    gc.collect()
    return set(multiprocessing.active_children())


def busy_worker(others):
    """Returns the process id of a worker that has begun with the last row."""
    time.sleep(1)
    return (set(multiprocessing.active_children()) - others).pop().pid


def kill_worker(others):
    os.kill(busy_worker(others), signal.SIGKILL)


def await_death():
    """Gives the system time to report it, in which any instruction could be interrupted."""
    end = time.monotonic() + 1
    while time.monotonic() < end:
        threading.Lock()


def test_a_death_is_held_back_until_the_next_batch(others):
    batches = iterate(DataLoader(Slow(), num_workers=1, prefetch_factor=4))
    assert next(batches).item() == 0
    kill_worker(others)
    await_death()
    with pytest.raises(RuntimeError, match=f"{DEAD_WORKER}.* killed by signal: Killed"):
        list(batches)


def test_too_few_descriptors(capfd):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 5, limits[1]))
    try:
        with pytest.raises(UserError, match=r"data\.workers: 2 .*Too many open files"):
            next(iterate(DataLoader(Slow(), num_workers=2, worker_init_fn=prepare_process)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        loading_processes._end_processes()
    assert capfd.readouterr().err == ""


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


def test_a_silent_process_is_reported_again_and_again(others, monkeypatch, caplog):
    monkeypatch.setattr(loading_processes, "SILENCE_S", 0.5)
    monkeypatch.setattr(loading_processes, "REPEAT_S", 0.5)
    batches = iterate(DataLoader(Slow(), num_workers=1, prefetch_factor=4))
    next(batches)
    worker = busy_worker(others)
    threading.Timer(2.0, os.kill, (worker, signal.SIGKILL)).start()
    os.kill(worker, signal.SIGSTOP)
    with pytest.raises(RuntimeError, match=DEAD_WORKER):
        list(batches)
    first, second = caplog.messages[:2]
    assert first.startswith(
        f"data.workers: no batch for 0 s; loading processes: {worker} (stopped)"
    )
    assert second.startswith("data.workers: no batch for 1 s")
