"""Compositions of `configs/train.yaml`: the cells of experiments, and single configs.

    for overrides, options in compose_cells("mft_table1", ["data=cub"]):
        print(overrides, options.loss.name)

Composing the configs of all experiments takes minutes, and a report or a plan needs every one of
them. They depend on the files of `configs/`, the code of `dml/config` and a few packages alone, so
the compositions and the cells of whole experiments are kept as JSON files in the user's cache
folder, below a digest of these: after a change of any of them, everything is composed anew. What is
in the cache needs no Hydra, which is imported late: this takes a tenth of a second.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from dml.config.check import check
from dml.config.identity import identity
from dml.config.presets import apply_params, split_params, split_trust
from dml.core.atomic_io import write_text
from dml.core.cache_folder import cache_folder
from dml.core.installation import CONFIGS, PACKAGE
from dml.core.regular_files import read_regular

FOLDERS_KEPT = 4  # digests of a few checkouts, or of the last few edits


class Options(dict[str, Any]):
    """A resolved config: nested dictionaries, whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def compose_cells(
    experiment: str, overrides: Sequence[str] = ()
) -> list[tuple[list[str], Options]]:
    """Returns the overrides and the resolved config of each run of an experiment, in order.

    Args:
        experiment: id of an experiment.
        overrides: further options of the command line.

    Raises:
        ConfigError: options are wrong.
        HydraException: the overrides do not compose.
    """
    whole = f"experiment={experiment}"
    if overrides:
        return compose_jobs(whole, *overrides)
    return _cached(whole, partial(compose_jobs, whole), Options)


def compose_jobs(*words: str) -> list[tuple[list[str], Options]]:
    """Returns overrides and options of the runs of a command, in order.

    Args:
        words: of `train`, with the values of several runs or an experiment.

    Raises:
        ConfigError: options are wrong.
        HydraException: the overrides do not compose.
    """
    from dml.config.grids import expand_grids

    _, typed = split_trust(words)
    _, overrides = split_params(typed)
    _, choices = _split(overrides)
    chosen = [word.input_line for word in choices if not word.is_sweep_override()]
    cfg, sweeper = _compose(tuple(chosen))
    if not cfg.experiment.trains:
        return []
    cells = []
    for job in expand_grids(sweeper["params"], sweeper["grids"], words):
        composed = compose_config(job)
        if len(words) > 1:  # the options of a user; the shipped ones are right
            check(composed)
        cells.append((job, OmegaConf.to_container(composed, resolve=True)))
    return json.loads(json.dumps(cells), object_hook=Options)


def compose_config(overrides: Sequence[str]) -> DictConfig:
    """Returns the config of `python train.py <overrides>`, which must not contain a sweep.

    The files of the groups are composed once; single options are then set on a copy, as Hydra does
    it, in a tenth of the time.
    """
    trust, typed = split_trust(overrides)
    params, words = split_params(typed)
    values, choices = _split(words)
    composed, _ = _compose(tuple([choice.input_line for choice in choices]))
    cfg = composed.copy()
    for word in values:
        OmegaConf.update(cfg, word.key_or_group, word.value(), merge=True)
    return apply_params(cfg, params, words, trust)


@cache
def identity_of(*overrides: str) -> dict[str, Any]:
    """Returns the options of a config that determine its result: dotted name → value."""
    return _cached(repr(overrides), lambda: identity(compose_config(overrides)))


def load_node(name: str) -> dict[str, Any]:
    """Returns the node `experiment` of `train.yaml`, with the values of an experiment's file.

    It is unresolved: the setting of a cell refers to the cell's loss.

    Args:
        name: id of an experiment; without a file, the node has the values of `train.yaml`.
    """

    def read_files() -> dict[str, Any]:
        node = _node_of_train()
        path = CONFIGS / "experiment" / f"{name}.yaml"
        if path.exists():
            node = OmegaConf.merge(node, OmegaConf.load(path).experiment)
        return cast(dict[str, Any], OmegaConf.to_container(node))

    return _cached(f"node {name}", read_files)


@cache
def _node_of_train() -> Any:
    return OmegaConf.load(CONFIGS / "train.yaml").experiment


def _split(words: Sequence[str]) -> tuple[list[Any], list[Any]]:
    """Returns the parsed overrides that set the value of an option, and all others."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    values: list[Any] = []
    others: list[Any] = []
    for word in OverridesParser.create().parse_overrides(list(words)):
        name = word.key_or_group
        is_file = (CONFIGS / name).is_dir() or word.package is not None or name.startswith("hydra")
        if is_file or word.is_add() or word.is_force_add() or word.is_delete():
            others.append(word)
        else:
            values.append(word)
    return values, others


@cache
def _compose(choices: tuple[str, ...]) -> tuple[DictConfig, dict[str, Any]]:
    """Returns the config of some files, and `params` and `grids` of its sweeper."""

    def compose_files() -> dict[str, Any]:
        from hydra import compose, initialize_config_dir

        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            cfg = compose("train", overrides=list(choices), return_hydra_config=True)
        # Resolved as Hydra does on reading: an escaped ${} is interpolated by a job's config.
        sweeper = OmegaConf.to_container(cfg.hydra.sweeper, resolve=True)
        return cast(dict[str, Any], OmegaConf.to_container(cfg)) | {"hydra": sweeper}

    content = _cached(f"files {choices}", compose_files)
    sweeper = content.pop("hydra")
    cfg = OmegaConf.create(content)
    OmegaConf.set_struct(cfg, True)  # as Hydra leaves it
    return cfg, sweeper


def _cached(key: str, make: Callable[[], Any], kind: type[dict[str, Any]] = dict) -> Any:
    """Returns a content of the cache, made anew if it is not there; its mappings are of a kind."""
    path = _cache_folder() / f"{sha256(key.encode()).hexdigest()[:32]}.json"
    try:
        digest, _, text = read_regular(path).decode().partition("\n")
        if digest == sha256(text.encode()).hexdigest():  # else damaged
            return json.loads(text, object_hook=kind)
    except (OSError, ValueError):
        pass
    text = json.dumps(make())
    with suppress(OSError):  # a home that cannot be written to costs time, nothing else
        write_text(path, f"{sha256(text.encode()).hexdigest()}\n{text}")
    return json.loads(text, object_hook=kind)


@cache
def _cache_folder() -> Path:
    """Returns the folder for the present config files; the oldest of the others are deleted."""
    digest = sha256()
    for name in ("hydra-core", "omegaconf", "timm"):
        digest.update(f"\n{name} {version(name)}".encode())
    files = [*CONFIGS.rglob("*.yaml"), *(PACKAGE / "config").glob("*.py")]
    for path in sorted(files):
        digest.update(f"\n{path.relative_to(PACKAGE.parent)}\n".encode())
        digest.update(path.read_bytes())
    folder = cache_folder() / "compositions" / digest.hexdigest()[:16]
    with suppress(OSError):
        stored = sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in stored[:-FOLDERS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return folder
