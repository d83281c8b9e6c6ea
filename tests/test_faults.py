"""What a machine does to a run: one line that says what to do, and the same command goes on."""

import errno
import multiprocessing
import os
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
from torch import nn

from dml.core.errors import UserError
from dml.core.exit_status import ExitStatus
from dml.data import loaders
from dml.methods.plain import Plain
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.resource_errors import translate_resource_errors
from dml.runs.scores.evaluator import Evaluator
from dml.training import trainer
from tests.conftest import TINY
from tests.data.trees import class_folders, truncate
from tests.test_resume import essence

# Seven steps an epoch on digits, one on the photos.
DIGITS = (*TINY, "protocol.epochs=3")
PHOTOS = (
    *TINY,
    *("data=folder", "backbone=small_cnn", "transform.size=16", "transform.test_resize=20"),
    *("data.batch_size=4", "protocol.epochs=14", "protocol.stopping.patience=null"),
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    class_folders(root)
    return root


@pytest.fixture(scope="module")
def undisturbed():
    return {}


@pytest.fixture
def goes_on(command_line, undisturbed, tmp_path):
    """Asserts that the command, typed again, ends as if nothing had happened."""

    def assert_so(*words, workers=()):
        out = f"outputs={tmp_path / 'outputs'}"
        status, _, err = command_line(*words, *workers, out)
        assert status == ExitStatus.FINISHED, err
        if words not in undisturbed:
            assert command_line(*words, f"outputs={tmp_path / 'calm'}")[0] == ExitStatus.FINISHED
            undisturbed[words] = essence(only(tmp_path / "calm"))
        assert essence(only(tmp_path / "outputs")) == undisturbed[words]

    return assert_so


def only(outputs):
    (config,) = outputs.rglob("config.yaml")
    return RunFolder(config.parent)


@pytest.fixture
def after_step(monkeypatch):
    """Does something after a training step."""

    def patch(number, act):
        steps = 0

        def passed(name):
            nonlocal steps
            steps += name == "after_step"
            if name == "after_step" and steps == number:
                act()

        monkeypatch.setattr(trainer, "fault_point", passed)

    return patch


def the_line(status, err):
    """The one line of a run that failed."""
    assert status == ExitStatus.FAILED, err
    (line,) = err.strip().splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    ("harm", "workers"), [(Path.unlink, 0), (truncate, 2)], ids=["vanished", "corrupt"]
)
def test_an_image_that_is_lost_during_training(
    command_line, after_step, goes_on, photos, tmp_path, monkeypatch, harm, workers
):
    trained = sorted(photos.glob("*/*"))[1]  # the first classes train
    kept = shutil.copy2(trained, tmp_path / "kept")
    words = (*PHOTOS, f"data.root={photos}")
    after_step(2, lambda: harm(trained))
    try:
        found = command_line(*words, f"data.workers={workers}", f"outputs={tmp_path / 'outputs'}")
        line = the_line(found[0], found[2])
    finally:
        shutil.copy2(kept, trained)
    assert str(trained) in line
    assert "(class 0 of folder); put the file back" in line
    state = torch.load(next(tmp_path.rglob("last.pt")), weights_only=True)
    assert 2 <= state["step"] < 14
    monkeypatch.undo()
    goes_on(*words, workers=[f"data.workers={workers}"])


def test_a_killed_loading_process(command_line, after_step, goes_on, tmp_path, monkeypatch):
    def kill():
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    after_step(9, kill)
    found = command_line(*DIGITS, "data.workers=2", f"outputs={tmp_path / 'outputs'}")
    line = the_line(found[0], found[2])
    assert re.match(
        r"error: data\.workers: a loading process died \((is killed by signal|exited unexp)", line
    )
    assert "the same command continues" in line
    assert not multiprocessing.active_children()
    monkeypatch.undo()
    goes_on(*DIGITS, workers=["data.workers=2"])


class BrokenLoader:
    """A loader whose process dies as it hands a batch over."""

    def __iter__(self):
        raise ConnectionResetError
        yield


@pytest.mark.parametrize("handled", [True, False])
def test_a_loading_process_killed_as_it_hands_a_batch_over(monkeypatch, handled):
    def handler(*received):
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")

    monkeypatch.setattr(loaders, "HANDLER_S", 0.3)
    batches = loaders.Batches(BrokenLoader(), nn.Identity(), torch.device("cpu"))
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1 * handled)  # 0: never
        with pytest.raises(UserError) as raised, translate_resource_errors():
            next(iter(batches))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    reason = "is killed by signal: Killed" if handled else "gone before its batch was here"
    assert f"data.workers: a loading process died ({reason})" in str(raised.value)


def too_much(*arguments, **options):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")


def no_memory(*arguments, **options):
    raise MemoryError


@pytest.mark.parametrize(
    ("where", "what", "expected"),
    [
        ((Plain, "forward"), too_much, "data.batch_size: 128 images do not fit into the GPU's"),
        ((Evaluator, "embed"), too_much, "data.eval_batch_size: so many images"),
        ((Plain, "forward"), no_memory, "data.workers: the machine's memory is full"),
    ],
    ids=["GPU in a step", "GPU in an evaluation", "host"],
)
def test_not_enough_memory(
    command_line, after_step, goes_on, tmp_path, monkeypatch, where, what, expected
):
    after_step(9, lambda: monkeypatch.setattr(*where, what))
    found = command_line(*DIGITS, f"outputs={tmp_path / 'outputs'}")
    assert the_line(found[0], found[2]).startswith(f"error: {expected}")
    monkeypatch.undo()
    goes_on(*DIGITS)


def test_other_errors_stay_what_they_are():
    for error in (RuntimeError("shapes differ"), ValueError("x")):
        with pytest.raises(type(error)) as raised, translate_resource_errors():
            raise error
        assert raised.value is error


@pytest.fixture
def full_disk(monkeypatch):
    """Makes the disk full when a file is to be synced for the n-th time, its last bytes lost."""

    def fill(name, number):
        sync, passed = os.fsync, 0

        def full(descriptor):
            nonlocal passed
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            if path.name.removeprefix(".").startswith(name):
                passed += 1
                if passed >= number:
                    os.truncate(path, max(0, path.stat().st_size - 3))
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            sync(descriptor)

        monkeypatch.setattr(os, "fsync", full)

    return fill


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("history.csv", 3),
        ("throughput.csv", 2),
        ("best.pt", 1),  # last.pt: tests/test_resume.py
        ("result.json", 1),
        pytest.param("learning_curve.png", 1, marks=pytest.mark.pictures),
        ("summary.json", 1),
    ],
)
def test_a_full_disk(command_line, goes_on, full_disk, tmp_path, monkeypatch, name, number):
    full_disk(name, number)
    found = command_line(*DIGITS, f"outputs={tmp_path / 'outputs'}")
    line = the_line(found[0], found[2])
    assert f"{name}: No space left on device" in line
    assert "run the same command to continue" in line
    assert not list(tmp_path.rglob("*.partial"))
    monkeypatch.undo()
    goes_on(*DIGITS)


def test_a_full_disk_while_images_are_cached(
    command_line, full_disk, photos, tmp_path, monkeypatch
):
    full_disk("folder-full-", 1)
    words = (*PHOTOS, f"data.root={photos}", "data.cache=full", "protocol.epochs=1")
    status, _, err = command_line(*words, f"outputs={tmp_path}")
    assert "data.cache: cannot write" in the_line(status, err)
    assert not [path for path in (photos / ".cache").iterdir() if path.suffix != ".lock"]
    monkeypatch.undo()
    assert command_line(*words, f"outputs={tmp_path}")[0] == ExitStatus.FINISHED
    shutil.rmtree(photos / ".cache")


def test_torch_has_no_exceptions_of_their_own_for_memory_and_workers():
    refused = pytest.raises(UserError, match="the machine's memory is full")
    with refused, translate_resource_errors():
        torch.empty(2**60)
    text = "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that"
    told = pytest.raises(UserError, match=r"died \(is killed by signal: Bus error\); where memory")
    with told, translate_resource_errors():
        raise RuntimeError(text)
