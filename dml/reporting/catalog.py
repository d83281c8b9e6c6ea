"""Catalog of experiments: every table and figure of the papers as a list of runs.

for cell in list_cells("mft_table1", ["data=cub"]):
    print(cell.command, cell.folder.exists())
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from dml.config.grids import expand_grids
from dml.config.presets import apply_params
from dml.config.schema import Config, ExperimentConfig
from dml.core.errors import ConfigError, nearest
from dml.core.installation import CONFIGS, shell_command
from dml.reporting.composition_cache import load_or_compute
from dml.runs.folder.run_folder import RunFolder
from dml.runs.jobs.job_list import FOLDS

PAPERS = ("mft", "pfml", "metrix", "ccp")  # in the order of docs/experiments.md
KINDS = ("table", "figure", "text")
METRICS = ["map_at_r", "precision_at_1", "r_precision", "best_epoch"]  # where a file names none
FIGURES = ["learning_curves", "neighbors"]  # of runs of no experiment


@dataclass(frozen=True)
class Cell:
    """One run of an experiment.

    Attributes:
        experiment: id of the experiment.
        overrides: options that select this cell, as Hydra's sweeper passes them to the job.
        config: composed config, with the values of `experiment.params`.
        folder: run folder; it holds `summary.json` once the run is finished.
        command: command that runs this cell and no other.
        trainings: models to train: trials × folds of the search, repeats × folds.
    """

    experiment: str
    overrides: tuple[str, ...]
    config: DictConfig
    folder: Path
    command: str
    trainings: int


def experiment_ids() -> list[str]:
    """Returns the ids of all experiments, by paper and in the order of its tables and figures."""
    return sorted((path.stem for path in (CONFIGS / "experiment").glob("*.yaml")), key=_sort_key)


def load_experiment(name: str) -> ExperimentConfig:
    """Returns the node `experiment` of an experiment's file; no config is composed.

    Args:
        name: id of an experiment, or a folder of runs of no experiment, which has no file.
    """
    node: Any = OmegaConf.load(CONFIGS / "train.yaml").experiment
    path = CONFIGS / "experiment" / f"{name}.yaml"
    if path.exists():
        node = OmegaConf.merge(node, OmegaConf.load(path).experiment)
    else:
        title = "Own runs" if name == "single" else name
        node.update({"id": name, "title": title, "figures": FIGURES})
    node.metrics = node.metrics or METRICS
    # Unresolved: the setting of a cell refers to the cell's loss.
    return ExperimentConfig(**cast(dict[str, Any], OmegaConf.to_container(node)))


def list_cells(experiment: str, overrides: Sequence[str] = ()) -> list[Cell]:
    """Returns the runs of `python train.py experiment=<experiment> <overrides>` in order.

    Args:
        experiment: one of `experiment_ids()`.
        overrides: options as on the command line.

    Returns:
        The runs; none for an experiment that a script draws without training.

    Raises:
        ConfigError: the experiment does not exist.
        HydraException: the overrides do not compose.
    """
    ids = experiment_ids()
    if experiment not in ids:
        raise ConfigError([f"experiment: no '{experiment}'{nearest(experiment, ids)}"])
    words = (f"experiment={experiment}", *overrides)
    sweep = _load_sweep(tuple(word for word in words if _selects_file(word)))
    if not sweep["trains"]:
        return []
    return [
        _make_cell(experiment, tuple(job))
        for job in expand_grids(sweep["params"], sweep["grids"], words)
    ]


def compose_config(overrides: Sequence[str]) -> DictConfig:
    """Returns the config of `python train.py <overrides>`, which must not contain a sweep.

    The files of the groups are composed once; single options are then set on a copy, as Hydra does
    it, in a tenth of the time.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    values = [one for one in parsed if _sets_value(one)]
    others = [one.input_line or "" for one in parsed if not _sets_value(one)]
    cfg = _compose_groups(tuple(others)).copy()
    for one in values:
        OmegaConf.update(cfg, one.key_or_group, one.value(), merge=True)
    return apply_params(cfg, None, overrides)


def count_trainings(cfg: DictConfig) -> int:
    """Returns the number of models that a run trains."""
    if cfg.protocol.epochs == 0:
        return 0
    trials = 0 if cfg.search is None else cfg.search.trials
    return (trials + cfg.protocol.repeats) * FOLDS[cfg.protocol.splits]


def _make_cell(experiment: str, overrides: tuple[str, ...]) -> Cell:
    cfg = compose_config(overrides)
    folder = RunFolder.of(cfg, cast(Config, cfg)).path
    typed = [word for word in overrides if not word.startswith("experiment.")]
    words = sorted(typed, key=lambda word: not word.startswith("experiment="))
    command = f"{shell_command('train')} {shlex.join(words)}"
    return Cell(experiment, overrides, cfg, folder, command, count_trainings(cfg))


@cache
def _compose_groups(choices: tuple[str, ...]) -> DictConfig:
    if GlobalHydra.instance().is_initialized():  # inside a job, whose search path may be longer
        return compose("train", overrides=list(choices))

    def compute() -> Any:
        with _initialized_hydra():
            return OmegaConf.to_container(compose("train", overrides=list(choices)))

    cfg = OmegaConf.create(load_or_compute(("config", *choices), compute))
    OmegaConf.set_struct(cfg, True)  # as Hydra leaves it
    return cfg


def _load_sweep(choices: tuple[str, ...]) -> dict[str, Any]:
    """Returns `trains` of an experiment, and the `params` and `grids` of its sweeper."""

    def compute() -> dict[str, Any]:
        with _initialized_hydra():
            cfg = compose("train", overrides=list(choices), return_hydra_config=True)
        sweep: dict[str, Any] = {"trains": cfg.experiment.trains}
        for key in ("params", "grids"):
            node = cfg.hydra.sweeper[key]
            # Resolved as Hydra does on reading: an escaped ${} is interpolated by a job's config.
            sweep[key] = node if node is None else OmegaConf.to_container(node, resolve=True)
        return sweep

    return load_or_compute(("sweep", *choices), compute)


@contextmanager
def _initialized_hydra() -> Iterator[None]:
    """Initializes Hydra unless it is initialized: inside a job, or by the caller."""
    if GlobalHydra.instance().is_initialized():
        yield
        return
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        yield


@cache
def _groups() -> frozenset[str]:
    return frozenset(str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*") if path.is_dir())


def _selects_file(word: str) -> bool:
    """Returns whether an override selects exactly one file of a group."""
    (override,) = OverridesParser.create().parse_overrides([word])
    return not override.is_sweep_override() and override.key_or_group in _groups()


def _sets_value(override: Override) -> bool:
    """Returns whether an override changes the value of an option and nothing else."""
    name = override.key_or_group
    grouped = name in _groups() or override.package is not None or name.startswith("hydra")
    return not (grouped or override.is_add() or override.is_force_add() or override.is_delete())


def _sort_key(name: str) -> tuple[int, int, int, str]:
    """Sorts `mft_table2` before `mft_table10`, and papers as in `PAPERS`."""
    paper, _, item = name.partition("_")
    paper_rank = PAPERS.index(paper) if paper in PAPERS else len(PAPERS)
    kind_rank = next((n for n, kind in enumerate(KINDS) if item.startswith(kind)), len(KINDS))
    digits = "".join(filter(str.isdigit, item))
    return paper_rank, kind_rank, int(digits or 0), name
