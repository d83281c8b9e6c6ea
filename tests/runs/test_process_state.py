"""Functions for programs leave the process as it was, after errors and Ctrl-C too."""

import logging
import os
import random
import signal
import sys
import warnings

import numpy as np
import pytest
import sklearn.manifold  # noqa: F401  it sets environment and filters, whoever imports it first
import torch
from hydra import compose, initialize_config_dir

import dml
from dml.core.errors import UserError
from dml.core.installation import CONFIGS
from dml.runs import experiment
from dml.runs.evaluation.evaluate import evaluate
from dml.runs.export import write_forms
from dml.runs.job import JobRun
from dml.runs.load import compose_network
from dml.training.process_state import restored_process_state
from tests.conftest import TINY
from tests.runs.test_stored_features import BATCHES, SHORT, write


def readable(read):
    try:
        return read()
    except RuntimeError:
        return "mixed names"


def state():
    """What a caller may have set, and what a program of several parts shares."""
    backends = torch.backends
    kind, keys, *position = np.random.get_state()
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn": (backends.cudnn.benchmark, backends.cudnn.deterministic),
        "tf32": readable(lambda: (backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32)),
        "matmul": readable(torch.get_float32_matmul_precision),
        "precision": [part.fp32_precision for part in (backends.cuda.matmul, backends.cudnn.conv)],
        "torch random": torch.get_rng_state().tolist(),
        "numpy random": (kind, keys.tolist(), *position),
        "python random": random.getstate(),
        "warnings": [*warnings.filters],
        "captured": warnings.showwarning,
        "handlers": [*logging.getLogger().handlers],
        "level": logging.getLogger().level,
        "optuna": sys.modules["optuna"].logging.get_verbosity() if "optuna" in sys.modules else 20,
        "signals": [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        "environment": dict(os.environ),
        "path": [*sys.path],
        "folder": os.getcwd(),
        "umask": (os.umask(0o22), os.umask(0o22))[1],
    }


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def unchanged(two_threads):
    """What a function changes, by name; `only` ignores the rest."""

    def check(function, error=None):
        torch.manual_seed(77)
        before = state()
        if error is None:
            function()
        else:
            with pytest.raises(error):
                function()
        after = state()
        return [name for name in before if before[name] != after[name]]

    return check


@pytest.fixture
def words(tmp_path):
    data = ["data=features", f"data.root={write(tmp_path / 'made.npz')}", "embedder.size=8"]
    return [*data, "loss=ms", *BATCHES, *SHORT, "device=cpu", f"outputs={tmp_path}/outputs"]


def test_training_on_features(unchanged, words):
    assert not unchanged(lambda: dml.train(words))
    assert not unchanged(lambda: dml.train(words))  # the finished run


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KeyboardInterrupt, KeyboardInterrupt),
        (RuntimeError, UserError),  # this file counts as code of the user
        (UserError, UserError),
    ],
)
def test_errors_in_a_run(unchanged, words, monkeypatch, error, raised):
    def fail(*args, **kwargs):
        assert torch.get_num_threads() == 1
        raise error("in the middle")

    monkeypatch.setattr(JobRun, "run", fail)
    assert not unchanged(lambda: dml.train(words), raised)


def test_wrong_options(unchanged):
    assert not unchanged(lambda: dml.train(["loss=nothing"]), UserError)


def test_a_search(unchanged, words):
    options = ["protocol=validation", "search=bayes", "search.trials=1"]
    assert not unchanged(lambda: dml.train([*words, *options]))


def test_functions_for_networks(unchanged, tmp_path):
    words = [*TINY, "protocol.epochs=0", f"outputs={tmp_path}/outputs", "device=cpu"]
    folder = dml.train(words)["folder"]
    pixels, file = np.zeros((4, 8, 8, 3), np.uint8), tmp_path / "x.npz"
    calls = [
        lambda: dml.load(folder),
        lambda: dml.load_all(folder),
        lambda: dml.export(folder, tmp_path / "exported"),
        lambda: dml.embed(folder, pixels, file),
        lambda: dml.search(file, [0], 2),
        lambda: evaluate(compose_network([f"embeddings={file}", "device=cpu"]), ()),
        lambda: evaluate(compose_network([f"run={folder}", "device=cpu"]), ()),
        lambda: experiment.resume(folder),
    ]
    errors = [None] * 5 + [UserError, None, None]
    for call, error in zip(calls, errors, strict=True):
        assert not unchanged(call, error)
    assert not unchanged(lambda: dml.load("nowhere"), UserError)
    assert not unchanged(lambda: write_forms(tmp_path / "nowhere", ["onnx"]), UserError)


@pytest.mark.parametrize("names", ["old", "new", "matmul"])
def test_precision_that_the_caller_has_chosen(names):
    def change():
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    parts = torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn
    with restored_process_state():
        if names == "old":
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
        elif names == "new":
            parts[0].fp32_precision, parts[1].fp32_precision = "tf32", "ieee"
        else:
            torch.set_float32_matmul_precision("medium")
        before = state(), [part.fp32_precision for part in parts]
        with restored_process_state():
            change()
        assert (state(), [part.fp32_precision for part in parts]) == before


def test_a_program_that_uses_hydra(words):
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        with pytest.raises(UserError):
            dml.train(["loss=nothing"])
        assert compose("train", ["data=digits"]).data.name == "digits"


def test_warnings_that_the_caller_logs_are_logged_after_a_run(words):
    logging.captureWarnings(True)
    try:
        captured = warnings.showwarning
        dml.train(words)
        assert warnings.showwarning is captured
    finally:
        logging.captureWarnings(False)


def test_random_numbers_continue(words):
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    expected = torch.rand(1).item(), np.random.rand(), random.random()
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    dml.train(words)
    assert (torch.rand(1).item(), np.random.rand(), random.random()) == expected
