"""What the machine lacks is named in one line, with the option that helps."""

from __future__ import annotations

import errno
import multiprocessing
import os
import resource
import subprocess

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from dml.core.errors import UserError
from dml.data.loaders import collate, iterate
from dml.runs.resource_errors import translate_resource_errors
from tests import forked

IMAGES = TensorDataset(torch.zeros(64, 3, 64, 64, dtype=torch.uint8), torch.zeros(64))


def load(workers: int, size: int = 16) -> str:
    """Returns the error message of a loader, or an empty text."""
    loader = DataLoader(IMAGES, batch_size=size, num_workers=workers, collate_fn=collate, timeout=1)
    try:
        with translate_resource_errors():
            assert len([*iterate(loader)]) == 64 / size
    except UserError as error:
        return str(error)
    return ""


def in_process(work) -> str:
    """Returns what `work` returns in a forked process, whose limits end with it."""
    result, message = os.pipe()

    def run():
        os.write(message, f"{work()}\n".encode())

    process = forked.context().Process(target=run)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    return os.read(result, 4096).decode()


def count_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.promise(
    "guides/resume.md",
    "open files, processes or shared memory are short: one line says which, its limit, and the "
    "option that helps",
)
def test_too_few_open_files(capfd):
    def work():
        limit = count_files() + 20
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        message = load(workers=8)
        assert not multiprocessing.active_children()
        return message

    message = in_process(work)
    assert message.startswith("data.workers: too many open files (ulimit -n is ")
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="the limit counts all processes of a user")
@pytest.mark.promise(
    "guides/resume.md",
    "open files, processes or shared memory are short: one line says which, its limit, and the "
    "option that helps",
)
def test_too_few_processes(capfd):
    def work():
        assert load(workers=1) == ""  # imports what the other user may not read
        resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
        os.setuid(54321)  # a user without processes; limits do not hold for root
        return load(workers=8)

    message = in_process(work)
    assert message.startswith("data.workers: the system starts no further process or thread")
    assert "ulimit -u" in message
    assert "Traceback" not in capfd.readouterr().err


def has_own_mounts() -> bool:
    return os.geteuid() == 0 and not subprocess.call(["unshare", "-m", "true"])


@pytest.mark.skipif(not has_own_mounts(), reason="needs a mount")
@pytest.mark.parametrize("size", ["200k", "8k"], ids=["no batch fits", "no process starts"])
@pytest.mark.promise(
    "guides/resume.md",
    "open files, processes or shared memory are short: one line says which, its limit, and the "
    "option that helps",
)
def test_too_little_shared_memory(capfd, size):
    """Docker's default is 64 MB; the thread that sends a batch would die without a word."""

    def work():
        unshare_mounts()
        subprocess.check_call(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", "/dev/shm"])
        return load(workers=2)

    message = in_process(work)
    total = {"200k": "0.205", "8k": "0.00819"}[size]
    assert message.startswith("data.workers: the shared memory of loading processes is full")
    assert f"(/dev/shm has {total} MB); enlarge it (docker run --shm-size=1g)" in message
    assert "Traceback" not in capfd.readouterr().err


def unshare_mounts() -> None:
    """Gives this process mounts of its own, which end with it."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    new_mounts, recursive, private = 0x20000, 0x4000, 0x40000
    assert libc.unshare(new_mounts) == 0
    assert libc.mount(None, b"/", None, recursive | private, None) == 0


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (RuntimeError("Too many open files. Communication with the workers"), "ulimit -n"),
        (RuntimeError("can't start new thread"), "protocol.workers"),
        (RuntimeError("DataLoader worker is killed by signal: Bus error. It"), "/dev/shm"),
        (RuntimeError("could not create a primitive"), "data.batch_size"),
        (OSError(errno.EIO, os.strerror(errno.EIO), "history.csv"), "history.csv: Input/output"),
        (OSError(errno.ESTALE, os.strerror(errno.ESTALE)), "outputs: Stale file handle; repair"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "data.workers: the machine's memory"),
    ],
)
def test_errors_of_libraries(error, named):
    with pytest.raises(UserError, match=named), translate_resource_errors():
        raise error


@pytest.mark.parametrize(
    "error", [RuntimeError("shapes differ"), FileNotFoundError(2, "No such file", "x")]
)
def test_other_errors_pass(error):
    with pytest.raises(type(error)), translate_resource_errors():
        raise error
