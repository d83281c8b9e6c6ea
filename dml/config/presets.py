"""Presets: `params=` sets options from a finished search or a published table.

`params=outputs/…/best.yaml` holds option → value; `params=mlrc` means `configs/params/mlrc.yaml`,
whose rows are loss → dataset → option → value; the row `default` applies to all datasets, and the
row of a dataset takes precedence over it. Overrides of the command line take precedence over both.
A named experiment may choose a table by `experiment.params`, in which rows may be missing.

A file may be of somebody else: it sets what makes a model and nothing else, and the classes that it
names are checked (`trust.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from dml.config.command_line import is_multirun, split_flags
from dml.config.options import format_override, is_below, set_option
from dml.config.plain_yaml import read_plain_yaml
from dml.config.trust import check_content
from dml.core.errors import ConfigError, first_line, nearest
from dml.core.installation import CONFIGS
from dml.core.regular_files import is_shell_pipe

# What a file may set: all of these nodes, and of the data what shapes a batch.
OF_A_MODEL = (
    "loss", "method", "backbone", "embedder", "optim", "transform", "protocol",
    "precision", "speed", "channels_last", "seed",
    "data.sampler", "data.pair_sampler", "data.batch_size", "data.micro_batch",
    "data.images_per_class", "data.categories_per_batch", "data.label_noise", "data.classes",
    "data.query_gallery", "data.images_per_class_at_most", "data.background",
    "data.exif_orientation",
)  # fmt: skip
NAME = re.compile(r"[A-Za-z]\w*(\.\w+)*")
KEY = re.compile(r"[\w.+-]+")  # of a mapping among the values
TRUST = "trust"  # trust=true: the word by which the user trusts a file


def split_params(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns the value of `params=`, the last one if there are several, and the other words."""
    return _split(words, "params=")


def split_trust(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Returns the value of `trust=`, the last one if there are several, and the other words.

    Raises:
        ConfigError: it is neither true nor false.
    """
    value, others = _split(words, f"{TRUST}=")
    if value is None:
        return False, others
    if value.lower() not in ("true", "false"):
        raise ConfigError([f"{TRUST}: '{value}' must be true or false"])
    return value.lower() == "true", others


def _split(words: Sequence[str], beginning: str) -> tuple[str | None, list[str]]:
    """Returns what follows a beginning in the last word that has it, and the words without it."""
    value = None
    others = []
    for word in words:
        if word.startswith(beginning):
            value = word.removeprefix(beginning)
        else:
            others.append(word)
    return value, others


def extract_params(
    words: Sequence[str], config_name: str, trust: bool = False
) -> tuple[list[str], str | None]:
    """Replaces `params=` in the command line by its values, placed before the user's overrides.

    Args:
        words: arguments of the command line.
        config_name: the primary config file in `configs/`.
        trust: see `load_preset`.

    Returns:
        The words for Hydra, and the value of `params=` if it is left to `apply_params`: in a
        multirun the values differ from job to job.
    """
    params, others = split_params(words)
    if params is None or is_multirun(words):
        return others, params
    from dml.config.explain import compose_config  # late: it imports Hydra

    _, overrides = split_flags(others)
    try:
        cfg = compose_config(config_name, overrides)
    except ConfigError:
        return others, params  # Hydra will report the same problem
    preset = load_preset(params, cfg.loss.name, cfg.data.name, trust=trust)
    apply_params(cfg, params, overrides, trust)  # rejects options that this run does not have
    words = [format_override(name, value) for name, value in preset.items()]
    return words + others, None


def apply_params(
    cfg: DictConfig, params: str | None, overrides: Iterable[str], trust: bool = False
) -> DictConfig:
    """Sets the options of a preset in `cfg`, except options that an override sets.

    Args:
        cfg: the composed config.
        params: value of `params=` on the command line; None means `experiment.params`.
        overrides: overrides of the command line, or of a multirun's job.
        trust: see `load_preset`.

    Raises:
        ConfigError: see `load_preset`, or an option that does not exist.
    """
    table = params or cfg.experiment.params
    problems = []
    for name, value in select_values(cfg, params, overrides, trust).items():
        try:
            set_option(cfg, name, value)
        except OmegaConfBaseException:
            problems.append(
                f"params: {table} sets {name}, which this run does not have; choose the loss and "
                f"method that the values are for"
            )
    if problems:
        raise ConfigError(problems)
    return cfg


def select_values(
    cfg: DictConfig, params: str | None, overrides: Iterable[str], trust: bool = False
) -> dict[str, Any]:
    """Returns what a preset sets in `cfg`, option → value; see `apply_params`."""
    table = params or cfg.experiment.params
    if table is None:
        return {}
    preset = load_preset(table, cfg.loss.name, cfg.data.name, params is not None, trust)
    typed = {word.lstrip("+~").partition("=")[0] for word in overrides}
    return {name: value for name, value in preset.items() if name not in typed}


def load_preset(
    params: str, loss: str, data: str, required: bool = True, trust: bool = False
) -> dict[str, Any]:
    """Returns a preset, option → value, for a loss on a dataset.

    Args:
        params: a file, or the name of one in `configs/params/`.
        loss, data: names of the loss and of the dataset.
        required: whether a missing row is an error; otherwise a missing row is empty.
        trust: the user trusts the file: it may name any class or function.

    Raises:
        ConfigError: no such file, no such row in a table, or an option or a class that a file may
            not set.
    """
    path = _find_table(params)
    try:
        # A pipe of the shell is read once: another look would find it empty.
        modified = 0 if is_shell_pipe(path) else path.stat().st_mtime_ns
        values = _parse(path, modified)
    except (OSError, ValueError) as error:
        raise ConfigError([f"params: {path} cannot be read: {first_line(error)}"]) from error
    if any(isinstance(value, dict) and "." not in name for name, value in values.items()):
        values = _select_row(values, path, loss, data, required)
    check_values(values, path, trust)
    return values


def check_values(values: dict[str, Any], source: Path, trust: bool = False) -> None:
    """Checks the options that a file sets: dotted name → value; nothing is imported.

    Args:
        values: of the file.
        source: the file, for messages.
        trust: the user trusts the file: it may name any class or function.

    Raises:
        ConfigError: an option or a class that a file may not set.
    """
    for name, value in values.items():
        if not (is_below(name, OF_A_MODEL) and NAME.fullmatch(name)):
            raise ConfigError([f"{source}: {name} is not set by a file; type it, or leave it out"])
        check_content(_wrap(name, value), source, trust)
        if not _can_be_typed(value):
            raise ConfigError([f"{source}: {name} holds characters that a command cannot"])


def _can_be_typed(value: Any) -> bool:
    """Returns whether a value means the same on the command line (`format_value`).

    There, a key or a text with quotes could end what it stands in, and begin another entry.
    """
    if isinstance(value, dict):
        keys = all(KEY.fullmatch(str(key)) for key in value)
        return keys and _can_be_typed(list(value.values()))
    if isinstance(value, list):
        return all(map(_can_be_typed, value))
    return not (isinstance(value, str) and re.search(r'["\\]|[^\x20-\U0010ffff]', value))


def _wrap(name: str, value: Any) -> dict[str, Any]:
    """Returns nested dictionaries with a value at a dotted name."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return value


def _find_table(params: str) -> Path:
    """Returns the file of a value of `params=`."""
    table = CONFIGS / "params" / f"{params}.yaml"
    for path in (Path(params), table):
        if os.path.isfile(path) or is_shell_pipe(path):
            return path
    if os.path.exists(params):
        best = Path(params, "best.yaml")
        hint = f"; write params={best}" if best.is_file() else ""
        raise ConfigError([f"params: {params} is no file{hint}"])
    names = ", ".join(sorted(file.stem for file in (CONFIGS / "params").glob("*.yaml")))
    raise ConfigError([f"params: {params} is neither a file nor one of {names}"])


def _select_row(
    content: dict[str, Any], path: Path, loss: str, data: str, required: bool
) -> dict[str, Any]:
    """Returns the values of a table for a loss on a dataset."""
    rows = content.get(loss, {})
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        raise ConfigError([f"params: {path}: {loss} is no table of datasets and their options"])
    if required and not {data, "default"} & rows.keys():
        missing = f"loss '{loss}'{nearest(loss, content)}"
        if rows:
            missing = f"{loss} on '{data}', only on {', '.join(rows)}"
        raise ConfigError([f"params: {path.name} has no values for {missing}"])
    return {**rows.get("default", {}), **rows.get(data, {})}


@cache
def _parse(path: Path, modified: int) -> dict[str, Any]:
    """Reads a file; cached by modification time, since every run of an experiment reads it."""
    return {str(name): value for name, value in read_plain_yaml(path, typed=True).items()}
