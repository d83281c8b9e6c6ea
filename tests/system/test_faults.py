"""Faults of the machine: one line says what to do, and the same command continues the run."""

import errno
import gc
import multiprocessing
import os
import re
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from dml.core import waits
from dml.core.exit_status import ExitStatus
from dml.methods.plain import Plain
from dml.runs.embeddings import Evaluator
from dml.training import trainer
from dml.training.checkpoint_files import Checkpoints
from tests.conftest import TINY, compose_config
from tests.data.trees import class_folders, truncate
from tests.runs.small_runs import SMALL
from tests.system.conftest import DIGITS
from tests.system.finished_runs import only_run_folder, results_of, start

PHOTOS = (  # one step an epoch
    *(word for word in TINY if not word.startswith("data=")),
    *("data=folder", "data.reader.split_seed=null", "protocol=traditional", "backbone=small_cnn"),
    *("transform.size=16", "transform.test_resize=20"),
    *("data.batch_size=4", "protocol.epochs=14", "protocol.stopping.patience=null"),
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("home") / "photos"
    class_folders(root)
    return root


@pytest.fixture(scope="module")
def known_results():
    """Results of undisturbed runs by command, filled when a test needs them."""
    return {}


@pytest.fixture
def assert_continues(undisturbed, known_results, tmp_path):
    """Asserts that the same config continues, with the results of an undisturbed run."""
    known_results[DIGITS] = undisturbed

    def assert_so(*words, workers=()):
        start(compose_config(*words, *workers, f"outputs={tmp_path / 'outputs'}"))
        if words not in known_results:
            start(compose_config(*words, f"outputs={tmp_path / 'calm'}"))
            known_results[words] = results_of(only_run_folder(tmp_path / "calm"))
        assert results_of(only_run_folder(tmp_path / "outputs")) == known_results[words]

    return assert_so


@pytest.fixture
def after_step(monkeypatch):
    """Calls a function after a training step."""

    def patch(number, act):
        steps = 0

        def passed(name):
            nonlocal steps
            steps += name == "after_step"
            if name == "after_step" and steps == number:
                act()

        monkeypatch.setattr(trainer, "fault_point", passed)

    return patch


def only_line(status, err):
    """Returns the one line that a run which failed printed."""
    assert status == ExitStatus.FAILED, err
    assert len(err.strip().splitlines()) == 1, err
    (line,) = err.strip().splitlines()
    assert line.startswith("error: ")
    return line


def delete(outputs):
    shutil.rmtree(outputs)


def move(outputs):
    outputs.rename(outputs.with_name("moved"))


def replace(outputs):
    kept = outputs.with_name("kept")
    shutil.copytree(outputs, kept)
    shutil.rmtree(outputs)
    kept.rename(outputs)


@pytest.mark.parametrize("act", [delete, move, replace])
@pytest.mark.promise(
    "guides/resume.md",
    "the run folder is deleted, moved or replaced: the run ends at its next save, and leaves "
    "nothing half made",
)
def test_a_folder_that_is_gone_during_training(command_line, after_step, tmp_path, act):
    outputs = tmp_path / "outputs"
    after_step(9, lambda: act(outputs))
    status, _, err = command_line(*DIGITS, f"outputs={outputs}")
    assert "was deleted, moved or replaced" in only_line(status, err)
    if act is not replace:
        assert not outputs.exists()  # nothing half made
    assert not list(tmp_path.rglob("summary.json"))


@pytest.fixture
def complete_saves(monkeypatch):
    """Each checkpoint is written before training goes on, so that no file comes in between."""
    save = Checkpoints.save

    def save_and_wait(checkpoints, state):
        save(checkpoints, state)
        checkpoints.wait()

    monkeypatch.setattr(Checkpoints, "save", save_and_wait)


FOLDS = (*SMALL, "protocol.epochs=3")
SEARCH = (*FOLDS, "protocol.repeats=1", "search=bayes", "search.trials=3")
KINDS = {
    "sweep": ("-m", *DIGITS, "seed=0,1"),
    "folds": FOLDS,
    "search": SEARCH,
    "workers": (*FOLDS, "protocol.workers=2"),
    "workers-of-a-search": (*SEARCH, "protocol.workers=2"),
}
SOAK = ("workers", "workers-of-a-search")  # processes that load torch


@pytest.mark.parametrize("act", [delete, move, replace])
@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("sweep", "{run}"),
        ("folds", "{run}"),
        ("folds", "{run}/checkpoints"),
        ("search", "{run}"),
        ("search", "{run}/search"),
        ("search", "{run}/search/trials/0000"),
        *(pytest.param(kind, "{run}", marks=pytest.mark.soak) for kind in SOAK),
    ],
)
@pytest.mark.promise(
    "guides/resume.md",
    "the run folder is deleted, moved or replaced: the run ends at its next save, and leaves "
    "nothing half made",
)
def test_a_folder_that_is_gone_during_runs_of_all_kinds(
    command_line, after_step, complete_saves, tmp_path, glyphs_root, kind, where, act
):
    outputs, gone = tmp_path / "outputs", []

    def harm():
        (config,) = outputs.rglob("config.yaml")
        folder = Path(where.format(run=config.parent))
        gone.append(folder)
        act(folder)

    after_step(3, harm)
    words = [*KINDS[kind], f"outputs={outputs}", "evaluation.measures=[]"]
    if kind != "sweep":
        words.append(f"data.root={glyphs_root}")
    status, _, err = command_line(*words)
    assert status == ExitStatus.FAILED
    assert err.count("was deleted, moved or replaced") == (2 if kind == "sweep" else 1), err
    assert "Traceback" not in err
    if act is not replace:
        assert not gone[0].exists()
    assert len(list(outputs.rglob("summary.json"))) == (kind == "sweep")


def run_harmed(command_line, after_step, words, name, harm, step=9):
    """Runs a training run in which a file of its folder is harmed after a step."""
    after_step(step, lambda: harm(next(Path().rglob(name))))
    status, out, err = command_line(*words)
    assert "Traceback" not in err
    return status, out, err


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: (path.unlink(), path.mkdir())])
@pytest.mark.promise(
    "guides/resume.md",
    "the best weights are deleted, moved or replaced: the run ends at its next save, before hours "
    "are lost",
)
def test_best_weights_that_are_gone(
    command_line, after_step, complete_saves, tmp_path, monkeypatch, harm
):
    monkeypatch.chdir(tmp_path)
    words = (*DIGITS, "protocol.epochs=9")  # the first epoch stays the best
    status, _, err = run_harmed(command_line, after_step, words, "best.pt", harm)
    assert "best.pt was deleted, moved or replaced" in only_line(status, err)
    assert not list(Path().rglob("summary.json"))
    after_step(1, lambda: pytest.fail("it trains"))
    for path in Path().rglob("best.pt"):
        path.rmdir()
    status, _, err = command_line(*words)
    assert "best.pt is missing" in only_line(status, err)


def test_a_config_that_is_deleted_is_written_again(
    command_line, after_step, tmp_path, monkeypatch, undisturbed
):
    monkeypatch.chdir(tmp_path)
    kept = []

    def harm(path):
        kept.append(path.read_bytes())
        path.unlink()

    status, out, _ = run_harmed(command_line, after_step, DIGITS, "config.yaml", harm)
    assert status == ExitStatus.FINISHED
    assert "config.yaml was deleted; it is written again" in " ".join(out.split())
    folder = only_run_folder(Path())
    assert folder.config.read_bytes() == kept[0]
    assert results_of(folder) == undisturbed


@pytest.mark.parametrize("name", ["repeat0-fold0", "repeat0-fold0/test_embeddings.npz"])
def test_results_of_a_finished_fold_that_are_gone(
    command_line, after_step, complete_saves, tmp_path, monkeypatch, glyphs_root, name
):
    monkeypatch.chdir(tmp_path)
    words = (*SMALL, "protocol.repeats=1", f"data.root={glyphs_root}")
    harm = {True: Path.unlink, False: shutil.rmtree}["." in name]
    status, out, err = run_harmed(
        command_line, after_step, words, f"checkpoints/{name}", harm, step=3
    )
    if "." in name:
        assert "test_embeddings.npz was deleted or moved; put it back" in only_line(status, err)
        shutil.rmtree(next(Path().rglob("repeat0-fold0")))
        status, out, err = command_line(*words)
    else:
        assert "the model is trained again" in " ".join(out.split())
    assert status == ExitStatus.FINISHED, err
    start(compose_config(*words, "outputs=calm"))
    calm = only_run_folder(Path("calm"))
    assert results_of(only_run_folder(Path("outputs"))) == results_of(calm)


@pytest.mark.parametrize(
    ("harm", "workers"), [(Path.unlink, 0), (truncate, 2)], ids=["vanished", "corrupt"]
)
@pytest.mark.promise(
    "guides/resume.md",
    "an image is lost or damaged during training: one line names it, and the same command "
    "continues once it is restored",
)
def test_an_image_that_is_lost_during_training(
    command_line, after_step, assert_continues, photos, tmp_path, monkeypatch, harm, workers
):
    trained = photos / "class_0" / "1.jpg"  # the first classes train
    kept = shutil.copy2(trained, tmp_path / "kept")
    words = (*PHOTOS, f"data.root={photos}")
    after_step(2, lambda: harm(trained))
    try:
        status, _, err = command_line(
            *words, f"data.workers={workers}", f"outputs={tmp_path / 'outputs'}"
        )
        line = only_line(status, err)
    finally:
        shutil.copy2(kept, trained)
    assert str(trained) in line
    state = torch.load(next(tmp_path.rglob("last.pt")), weights_only=True)
    assert 2 <= state["step"] < 14
    monkeypatch.undo()
    assert_continues(*words, workers=[f"data.workers={workers}"])


@pytest.mark.parametrize("training", [True, False], ids=["in-training", "in-an-evaluation"])
@pytest.mark.promise(
    "guides/resume.md",
    "a loading process is killed: one line says so, and the same command continues",
)
def test_a_killed_loading_process(
    command_line, after_step, assert_continues, tmp_path, monkeypatch, training
):
    gc.collect()  # the loaders of other tests
    before = set(multiprocessing.active_children())

    def kill():
        child = (set(multiprocessing.active_children()) - before).pop()
        os.kill(child.pid, signal.SIGKILL)

    score = Evaluator.score

    def kill_and_score(self, *arguments):
        kill()
        return score(self, *arguments)

    def kill_later():
        monkeypatch.setattr(Evaluator, "score", kill_and_score)

    after_step(9, kill if training else kill_later)
    status, _, err = command_line(*DIGITS, "data.workers=2", f"outputs={tmp_path / 'outputs'}")
    line = only_line(status, err)
    died = r"error: data\.workers: a loading process died "
    assert re.match(died + r"\((is killed by signal|exited (unexp|before))", line)
    assert "the same command continues" in line
    assert not set(multiprocessing.active_children()) - before
    monkeypatch.undo()
    assert_continues(*DIGITS, workers=["data.workers=2"])


@pytest.fixture
def stopped_processes():
    """Stops the loading processes that were started since the test began; kills them at its end."""
    gc.collect()  # the loaders of other tests
    before, stopped = set(multiprocessing.active_children()), []

    def stop():
        stopped.extend(set(multiprocessing.active_children()) - before)
        for process in stopped:
            os.kill(process.pid, signal.SIGSTOP)

    yield stop
    for process in stopped:
        process.kill()


@pytest.mark.parametrize("evaluating", [False, True], ids=["in-training", "in-an-evaluation"])
@pytest.mark.promise(
    "guides/resume.md",
    "a loading process is stopped, or hangs: after half a minute a line names it, and a stop ends "
    "the run within ten seconds, saved",
)
def test_a_stopped_loading_process(
    command_line,
    after_step,
    assert_continues,
    stopped_processes,
    tmp_path,
    monkeypatch,
    capfd,
    evaluating,
):
    monkeypatch.setattr(waits, "NOTE_SECONDS", 1.0)
    terminated = []

    def terminate():
        terminated.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    def stop():
        stopped_processes()
        threading.Timer(3, terminate).start()

    if evaluating:
        embed = Evaluator.embed

        def stop_and_embed(*arguments):
            monkeypatch.setattr(Evaluator, "embed", embed)
            stop()
            return embed(*arguments)

        after_step(9, lambda: monkeypatch.setattr(Evaluator, "embed", stop_and_embed))
    else:
        after_step(9, stop)
    status, _, err = command_line(*DIGITS, "data.workers=2", f"outputs={tmp_path / 'outputs'}")
    assert time.monotonic() - terminated[0] < 10
    assert status == ExitStatus.TERMINATED
    named = r"note: data\.workers: no batch from loading process [\d, ]+ on .* for \d s; "
    assert re.search(named + ".*kill -CONT", err), err
    assert "stopped by SIGTERM; saved" in err
    state = torch.load(next(tmp_path.rglob("last.pt")), weights_only=True)
    assert state["step"] >= 9
    monkeypatch.undo()
    assert_continues(*DIGITS, workers=["data.workers=2"])


def too_much(*arguments, **options):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")


@pytest.mark.parametrize(
    ("where", "what", "expected"),
    [
        ((Plain, "forward"), too_much, "data.batch_size: 128 images do not fit into the GPU's"),
        ((Evaluator, "embed"), too_much, "data.eval_batch_size: so many images"),
    ],
    ids=["GPU in a step", "GPU in an evaluation"],
)
@pytest.mark.promise("guides/resume.md", "memory is full: one line names the option that helps")
def test_not_enough_memory(
    command_line, after_step, assert_continues, tmp_path, monkeypatch, where, what, expected
):
    after_step(9, lambda: monkeypatch.setattr(*where, what))
    status, _, err = command_line(*DIGITS, f"outputs={tmp_path / 'outputs'}")
    assert only_line(status, err).startswith(f"error: {expected}")
    monkeypatch.undo()
    assert_continues(*DIGITS)


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
    ("name", "number"), [("history.csv", 3), ("best.pt", 1), ("summary.json", 1)]
)
@pytest.mark.promise(
    "guides/resume.md",
    "the disk is full: one line names the file, and the same command continues",
)
def test_a_full_disk(
    command_line, assert_continues, full_disk, tmp_path, monkeypatch, name, number
):
    full_disk(name, number)
    status, _, err = command_line(*DIGITS, f"outputs={tmp_path / 'outputs'}")
    line = only_line(status, err)
    assert f"{name}: No space left on device" in line
    assert "run the same command to continue" in line
    assert not list(tmp_path.rglob("*.partial"))
    monkeypatch.undo()
    assert_continues(*DIGITS)


@pytest.mark.parametrize("name", ["history.csv", "best.pt", "config.yaml"])
def test_a_full_disk_in_a_sweep_is_listed_with_the_file(command_line, full_disk, tmp_path, name):
    full_disk(name, 1)
    words = ("-m", *DIGITS, "seed=0,1", f"outputs={tmp_path / 'outputs'}")
    status, _, err = command_line(*words)
    assert status == ExitStatus.FAILED
    _, _, listed = err.partition("2 of 2 runs failed:\n")
    assert [f"{name}: No space left" in line for line in listed.splitlines()] == [True, True]
    assert "Errno" not in err


def test_a_full_disk_while_images_are_cached(
    command_line, full_disk, photos, tmp_path, monkeypatch
):
    full_disk("photos-full-", 1)
    words = (*PHOTOS, f"data.root={photos}", "data.cache=full", "protocol.epochs=1")
    status, _, err = command_line(*words, f"outputs={tmp_path}")
    assert "data.cache: cannot write" in only_line(status, err)
    left = {path.suffix for path in (photos / ".cache").iterdir()}
    # neither pixels nor their table (`.npy`); `checked-….npz`: checked images
    assert left <= {".lock", ".npz"}
    monkeypatch.undo()
    assert command_line(*words, f"outputs={tmp_path}")[0] == ExitStatus.FINISHED
    shutil.rmtree(photos / ".cache")
