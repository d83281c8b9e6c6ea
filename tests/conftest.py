"""Fixtures that most tests need: composed configs, and small runs in a temporary folder."""

from __future__ import annotations

import copy
import gc
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hypothesis import settings
from omegaconf import DictConfig, OmegaConf

from dml.config.hydra_internals import apply_override
from dml.core.installation import CONFIGS

os.environ.setdefault("OMP_NUM_THREADS", "1")  # subprocesses share two cores

# The same examples in every run, so that a failure comes from the change that is tested.
# HYPOTHESIS_PROFILE=default looks for new examples.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# The smallest run that still trains, evaluates and stops by itself.
TINY = (
    *("data=digits", "device=cpu", "protocol.epochs=2", "embedder.size=8", "backbone.width=4"),
    "data.eval_batch_size=1000",
)


# Test functions that `make test` leaves out, and `make test-all` takes.
SLOW_TESTS = Path(__file__).with_name("slow_tests.txt")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that `slow_tests.txt` names, with all their parameters."""
    slow = set(SLOW_TESTS.read_text(encoding="utf-8").split())
    for item in items:
        function = item.nodeid.partition("[")[0]
        if function in slow:
            item.add_marker("slow")


@pytest.fixture(autouse=True)
def _fresh_hydra():
    _clear_hydra()
    yield
    _clear_hydra()


def _clear_hydra() -> None:
    GlobalHydra.instance().clear()
    HydraConfig.instance().cfg = None  # a sweep leaves that of its last job


@contextmanager
def without_pictures() -> Iterator[None]:
    """Runs draw nothing meanwhile: pictures take as long as the rest of a tiny run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dml.runs.experiment.draw_curves", lambda *more: None)
        patch.setattr("dml.runs.job_scores.draw_test_images", lambda *more, **options: None)
        yield


@pytest.fixture(autouse=True)
def _no_pictures(request):
    """Leaves out the pictures of runs, except in tests marked `pictures`."""
    with nullcontext() if request.node.get_closest_marker("pictures") else without_pictures():
        yield


@pytest.fixture
def kept_states(monkeypatch):
    """Keeps `last.pt` of finished trainings."""
    name = "dml.training.checkpoint_files.Checkpoints.remove_states"
    monkeypatch.setattr(name, lambda checkpoints: None)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _few_objects_to_collect():
    """Hides the tests themselves from the garbage collector: a collection takes 0.4 s with them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()  # nanobind would report leaks at the end


@pytest.fixture(scope="session", autouse=True)
def _parsed_config_files():
    """Keeps what Hydra parses: reading its YAML files is half of the time of a composition."""
    load, parsed = yaml.load, {}

    def load_once(stream, Loader):
        if Loader.__name__ != "OmegaConfLoader":  # OmegaConf copies what it gets
            return load(stream, Loader)
        text = stream if isinstance(stream, str) else stream.read()
        if text not in parsed:
            named = io.StringIO(text)
            named.name = getattr(stream, "name", "")  # for errors
            parsed[text] = load(named, Loader)
        return parsed[text]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml, "load", load_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk():
    """Files are not forced onto the disk: no test loses power, and a run would wait 30 times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


PLACES = ("outputs=", "data.root=")  # plain values that differ between tests of the same config


def compose_config(*overrides: str) -> DictConfig:
    """Composes `train.yaml` with overrides, as the command line does; on digits by default.

    Composing takes a third of a tiny run, so configs that differ only in `PLACES` share it.
    """
    words = [word for word in overrides if not word.startswith(PLACES)]
    cfg = copy.deepcopy(_composed(*_on_digits(words)))
    for word in overrides:
        if word.startswith(PLACES):
            name, _, value = word.partition("=")
            OmegaConf.update(cfg, name, value)
    return cfg


def _on_digits(overrides: Sequence[str]) -> list[str]:
    """Adds the smallest dataset to overrides that choose none."""
    chosen = any(word.startswith(("data=", "experiment=")) for word in overrides)
    return [*overrides] if chosen else ["data=digits", *overrides]


@lru_cache(maxsize=64)
def _composed(*overrides: str) -> DictConfig:
    """Composes the groups once for all values of their options, which takes a tenth of the time."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    choices = [override for override in parsed if not _is_option(override)]
    if any(override.is_sweep_override() for override in parsed):
        choices = parsed  # Hydra refuses it
    cfg = copy.deepcopy(_composed_groups(*(override.input_line or "" for override in choices)))
    for override in parsed:
        if override not in choices:
            apply_override(override, cfg)
    return cfg


def _is_option(override: Override) -> bool:
    """Returns whether an override sets a value, as opposed to choosing a file of a group."""
    name = override.key_or_group
    return not (CONFIGS / name).is_dir() and "/" not in name and not name.startswith("hydra.")


@lru_cache(maxsize=256)
def _composed_groups(*choices: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("train", overrides=list(choices))


@pytest.fixture
def composed() -> Callable[..., DictConfig]:
    """Composes `train.yaml` with overrides, and with the config files of a search path."""

    def compose_with(*overrides: str, searchpath: Path | None = None) -> DictConfig:
        if searchpath is None:
            return compose_config(*overrides)
        words = [f"hydra.searchpath=[file://{searchpath}]", *_on_digits(overrides)]
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            return compose("train", overrides=words)

    return compose_with


def run_config(cfg: DictConfig) -> tuple[dict[str, Any], Path]:
    """Checks a composed config and runs it; returns the summary and the run folder."""
    from dml.config.check import check
    from dml.runs.experiment import run
    from dml.runs.folder.run_folder import RunFolder

    config = check(cfg)
    return run(config), RunFolder.of(config).path


@pytest.fixture
def run_tiny(composed, tmp_path) -> Callable[..., tuple[dict[str, Any], Path]]:
    """Runs a tiny experiment in process; returns its summary and its folder."""

    return lambda *overrides: run_config(composed(f"outputs={tmp_path}/outputs", *TINY, *overrides))


@pytest.fixture
def command_line(monkeypatch, capfd) -> Callable[..., tuple[int, str, str]]:
    """Runs `train.py` in process; returns exit status, stdout and stderr."""

    def run_command(*words: str) -> tuple[int, str, str]:
        from dml.cli.error_lines import report_errors
        from dml.cli.hydra_command import run_command
        from dml.cli.train_command import describe, resume, train

        monkeypatch.setattr("sys.argv", ["train.py"])
        run = report_errors(run_command)
        return run(words, train, "train", describe, resume), *capfd.readouterr()

    return run_command


@pytest.fixture
def own_modules(monkeypatch) -> Iterator[None]:
    """The import path that commands extend is restored, modules named `my_*` are forgotten."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def glyphs_root(tmp_path_factory) -> Path:
    """A folder in which the few glyphs of `SMALL` runs are drawn once."""
    return tmp_path_factory.mktemp("glyphs")


@pytest.fixture
def run_small(composed, tmp_path, glyphs_root) -> Callable[..., Path]:
    """Runs MLRC on a few glyphs in process; returns the run folder."""

    def run_with(*overrides: str, name: str = "outputs") -> Path:
        from tests.runs.small_runs import SMALL

        places = (f"outputs={tmp_path / name}", f"data.root={glyphs_root}")
        return run_config(composed(*SMALL, *places, *overrides))[1]

    return run_with
