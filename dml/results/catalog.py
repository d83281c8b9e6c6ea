"""Catalog of experiments: every table and figure of the papers as a list of runs.

for cell in list_cells("mft_table1", ["data=cub"]):
    print(cell.command, cell.folder.exists())

Composing the configs of all experiments takes minutes, and a report or a plan needs every one of
them. They depend on the files of `configs/` and on Hydra alone, so each is kept as a JSON file in
the user's cache folder, below a digest of both: after a change of any config file, everything is
composed anew.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
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
from dml.core.atomic_io import write_text
from dml.core.errors import ConfigError, nearest
from dml.core.installation import CONFIGS, shell_command
from dml.results.published import PublishedResult, ResultKey, find_reason, find_results
from dml.runs.folder.run_folder import RunFolder

PAPERS = ("mft", "pfml", "metrix", "ccp")  # in the order of docs/experiments.md
KINDS = ("table", "figure", "text")
METRICS = ["map_at_r", "precision_at_1", "r_precision", "best_epoch"]  # where a file names none
FIGURES = ["learning_curves", "neighbors"]  # of runs of no experiment
FOLDERS_KEPT = 4  # digests of a few checkouts, or of the last few edits


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

    def result_keys(self) -> Iterator[ResultKey]:
        """Yields what the cell's numbers will be measured on, one key per evaluation."""
        from dml.runs.folder.summary import protocol_id, result_id  # late: they load torch
        from dml.runs.protocol import FOLDS

        cfg: Any = self.config
        several = FOLDS[cfg.protocol.splits] > 1
        for evaluation in ("separated", "concatenated") if several else ("single",):
            # the ids read attributes only
            place = (cfg.data.name, cfg.backbone.name, cfg.embedder.size, protocol_id(cfg))
            yield ResultKey(*place, evaluation, result_id(cfg), cfg.experiment.get("setting") or "")


@dataclass(frozen=True)
class CellMatch:
    """One cell under one evaluation, with the published results that match it.

    Attributes:
        experiment: id of the experiment.
        cell: its cell.
        key: what the cell's numbers are measured on.
        results: metric → matching results, the one that counts first; only metrics with results.
    """

    experiment: str
    cell: Cell
    key: ResultKey
    results: Mapping[str, Sequence[PublishedResult]]

    @property
    def reason(self) -> str | None:
        """Reason why no result is published; None if one is, or no reason is on file."""
        if self.results:
            return None
        columns = {"experiment": self.experiment, "data": self.key.data}
        columns |= {"method": self.key.method, "evaluation": self.key.evaluation}
        return find_reason("not_printed.csv", columns)


def match_cells(about: ExperimentConfig, cells: Iterable[Cell]) -> Iterator[CellMatch]:
    """Yields the matches of an experiment's cells; none if it names no table of a paper."""
    if about.source is None or not about.tables:
        return
    for cell in cells:
        for key in cell.result_keys():
            found = {m: find_results(key, m, about.source, about.tables) for m in about.metrics}
            yield CellMatch(about.id, cell, key, {m: some for m, some in found.items() if some})


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
        node.update({"title": title, "figures": FIGURES})
    node.id = name
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
    from dml.runs.protocol import FOLDS  # late: it loads torch

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


def load_or_compute(words: Sequence[str], compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Returns the cached value for some words, computed and stored if it is not there.

    Args:
        words: everything in addition to the files of `configs/` that the value depends on.
        compute: returns a mapping of JSON's own types, with strings as keys.
    """
    key = sha256("\n".join(words).encode()).hexdigest()[:32]
    path = _cache_folder() / f"{key}.json"
    with suppress(OSError, ValueError):
        return dict(json.loads(path.read_text(encoding="utf-8")))
    value = compute()
    with suppress(OSError):  # a home that cannot be written to costs time, nothing else
        write_text(path, json.dumps(value))
    return value


@cache
def _cache_folder() -> Path:
    """Returns the folder for the present config files; the oldest of the others are deleted."""
    digest = sha256()
    for name in ("hydra-core", "omegaconf"):
        digest.update(f"\n{name} {version(name)}".encode())
    for path in sorted(CONFIGS.rglob("*.yaml")):
        digest.update(f"\n{path.relative_to(CONFIGS)}\n".encode())
        digest.update(path.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "dml-benchmark" / "compositions" / digest.hexdigest()[:16]
    with suppress(OSError):
        others = [path for path in folder.parent.iterdir() if path != folder]
        others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for old in others[FOLDERS_KEPT - 1 :]:
            shutil.rmtree(old, ignore_errors=True)
    return folder
