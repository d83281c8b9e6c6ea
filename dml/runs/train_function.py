"""`dml.train`: one run from Python, such as from a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from dml.config.check import check
from dml.config.command_line import is_multirun
from dml.config.explain import explain
from dml.config.presets import apply_params
from dml.config.schema import Config
from dml.core.errors import ConfigError, first_line
from dml.core.installation import CONFIGS, shell_command
from dml.runs.experiment import run


def train(overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Trains and evaluates a model as `python train.py <overrides>` does; returns its summary.

    A finished run is not trained again: its summary is read from its folder.

    Args:
        overrides: words of the command line, such as `["loss=mfcwms", "data=glyphs"]`; one value
            for each option.

    Returns:
        The content of `summary.json`.

    Raises:
        ConfigError: a wrong option, one line per problem.
        UserError: another problem that the user can solve.
        RunStopped: the run was interrupted; its state is saved and the same call continues.
    """
    if isinstance(overrides, str):
        raise ConfigError([f"train: takes a list of words; type dml.train({overrides.split()})"])
    words = list(overrides)
    if is_multirun(words):
        raise ConfigError(
            [f"train: trains one model; call it in a loop, or use {shell_command('train')} instead"]
        )
    cfg = _compose(words)
    return run(cfg, check(cfg, Config), words)


def _compose(words: Sequence[str]) -> DictConfig:
    """Composes `train.yaml` and leaves Hydra's global state as it was."""
    from hydra import compose, initialize_config_dir

    params = [word.partition("=")[2] for word in words if word.startswith("params=")]
    options = [word for word in words if not word.startswith("params=")]
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            cfg = compose("train", overrides=options)
    except Exception as error:  # Hydra refuses overrides with errors of many classes
        raise ConfigError(explain(options, "train") or [first_line(error)]) from error
    return apply_params(cfg, params[-1] if params else None, options)
