"""Processes that take part in a run: their devices, threads and ends."""

import errno
import os
import signal
import time

import pytest
import torch

from dml.config.check import check
from dml.core.errors import UserError
from dml.runs import workers
from dml.runs.workers import start_workers
from tests import forked
from tests.waiting import wait_until


class Fresh(forked.context().Process):
    """Has the number of threads of a fresh process."""

    def run(self):
        torch.set_num_threads(1)
        super().run()


@pytest.fixture
def quick(monkeypatch):
    """Processes are forked."""
    context = forked.context()
    context.Process = Fresh
    monkeypatch.setattr(workers.multiprocessing, "get_context", lambda start: context)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cuda", ["cuda:0", "cuda:1", "cuda:1"]),  # this process trains on the first one, too
        ("auto", ["cuda:0", "cuda:1", "cuda:1"]),
        ("cuda:1", ["cuda:1"] * 3),
        ("cpu", ["cpu"] * 3),
    ],
)
def test_each_gpu_has_as_many_processes(composed, quick, monkeypatch, tmp_path, device, expected):
    def resolve(name):
        return torch.device("cuda" if name == "auto" else name)

    def note(config, stop):
        (tmp_path / f"{os.getpid()}.device").write_text(config.device)

    monkeypatch.setattr(workers, "resolve_device", resolve)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    config = check(composed("device=cpu")).model_copy(update={"device": device})
    with start_workers(note, config, tmp_path, 3):
        pass
    assert sorted(file.read_text() for file in tmp_path.glob("*.device")) == expected


def test_each_process_has_the_threads_of_this_one(composed, quick, tmp_path):
    def note(config, stop):
        (tmp_path / "threads").write_text(str(torch.get_num_threads()))

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with start_workers(note, check(composed("device=cpu")), tmp_path, 1):
            pass
    finally:
        torch.set_num_threads(before)
    assert (tmp_path / "threads").read_text() == "3"


def test_a_process_ends_when_this_one_is_killed(composed, quick, tmp_path):
    config = check(composed("device=cpu"))

    def work(config, stop):
        (tmp_path / "began").touch()
        end = time.monotonic() + 30
        while stop() is None and time.monotonic() < end:
            time.sleep(0.02)
        (tmp_path / "partial").write_text(str(stop()))
        (tmp_path / "partial").rename(tmp_path / "ended")

    def run():
        with start_workers(work, config, tmp_path, 1):
            signal.pause()

    def wait_for(name):
        wait_until(lambda: (tmp_path / name).exists())

    process = forked.context().Process(target=run)
    process.start()
    wait_for("began")
    process.kill()
    process.join()
    wait_for("ended")
    assert (tmp_path / "ended").read_text() == "the process that started this one ended"


@pytest.mark.parametrize("change", ["deleted", "replaced"])
def test_a_process_that_starts_late_makes_no_other_folder(
    composed, quick, monkeypatch, tmp_path, change
):
    """The folder of the run may be gone while a process still loads its modules."""
    folder, run = tmp_path / "run", workers._run

    def start_late(*arguments):
        folder.rename(tmp_path / "moved")
        if change == "replaced":
            folder.mkdir()
        run(*arguments)

    def work(config, stop):
        (folder / "model").touch()

    monkeypatch.setattr(workers, "_run", start_late)
    with start_workers(work, check(composed("device=cpu")), folder, 1):
        pass
    assert folder.exists() == (change == "replaced")
    assert not list(folder.glob("*"))


def test_ctrl_c_does_not_reach_a_process_from_its_first_moment(composed, quick, tmp_path):
    def work(config, stop):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        (tmp_path / "stop").write_text(str(stop()))

    with start_workers(work, check(composed("device=cpu")), tmp_path, 1):
        pass
    assert (tmp_path / "stop").read_text() == "None"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_folder_of_another_user_is_named_with_the_option(composed, tmp_path, monkeypatch):
    def refuse(path, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    config = check(composed("data=digits", "device=cpu"))
    with (
        pytest.raises(UserError, match=r"outputs: cannot write to .*; set outputs="),
        start_workers(print, config, tmp_path / "run", 0),
    ):
        pass
