"""The catalogue: every table and figure of the papers as a list of runs.

for cell in cells("mft_table1", ["data=cub"]):
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

from dml.config.config_groups import CONFIGS
from dml.config.grids import expand_grids
from dml.config.presets import apply_params
from dml.config.schema import Config
from dml.core.errors import ConfigError, nearest
from dml.reporting.composition_cache import remembered
from dml.runs.folder.run_folder import RunFolder
from dml.runs.protocols import FOLDS


@dataclass(frozen=True)
class Cell:
    """One run of an experiment.

    Attributes:
        experiment: its id.
        overrides: what makes it this cell, as Hydra's sweeper gives them to the job.
        config: as composed, with the values of `experiment.params`.
        folder: of its run; `summary.json` is there once it is finished.
        command: that runs it, and it alone.
        trainings: models that it trains: trials × folds of its search, repeats × folds.
    """

    experiment: str
    overrides: tuple[str, ...]
    config: DictConfig
    folder: Path
    command: str
    trainings: int


def names() -> list[str]:
    """All experiments, by paper and then in the order of their tables and figures."""
    return sorted((path.stem for path in (CONFIGS / "experiment").glob("*.yaml")), key=_place)


def about(experiment: str) -> dict[str, Any]:
    """The node `experiment` of an experiment's file, as written there; no config is composed."""
    whole = OmegaConf.load(CONFIGS / "train.yaml")
    own = OmegaConf.load(CONFIGS / "experiment" / f"{experiment}.yaml")
    node = OmegaConf.merge(whole.experiment, own.experiment)
    return cast(dict[str, Any], OmegaConf.to_container(node))


def cells(experiment: str, overrides: Sequence[str] = ()) -> list[Cell]:
    """The runs of `python train.py experiment=<experiment> <overrides>`, in their order.

    Args:
        experiment: one of `names()`.
        overrides: as on the command line.

    Returns:
        Its runs; none for what a script draws without training.

    Raises:
        ConfigError: there is no such experiment.
        HydraException: the overrides do not compose.
    """
    if experiment not in names():
        raise ConfigError([f"experiment: no '{experiment}'{nearest(experiment, names())}"])
    given = (f"experiment={experiment}", *overrides)
    swept = _swept(tuple(word for word in given if _is_choice(word)))
    if not swept["trains"]:
        return []
    return [
        _cell(experiment, tuple(job))
        for job in expand_grids(swept["params"], swept["grids"], given)
    ]


def composed(overrides: Sequence[str]) -> DictConfig:
    """The config of `python train.py <overrides>`, which name no sweep.

    Choices of groups are composed once; single options then take their values on a copy, which is
    what Hydra does, in a tenth of the time.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    simple = [one for one in parsed if _is_plain(one)]
    others = [one.input_line or "" for one in parsed if not _is_plain(one)]
    cfg = _composed(tuple(others)).copy()
    for one in simple:
        OmegaConf.update(cfg, one.key_or_group, one.value(), merge=True)
    return apply_params(cfg, None, overrides)


def trainings(cfg: DictConfig) -> int:
    """How many models a run trains."""
    if cfg.protocol.epochs == 0:
        return 0
    trials = 0 if cfg.search is None else cfg.search.trials
    return (trials + cfg.protocol.repeats) * FOLDS[cfg.protocol.splits]


def _cell(experiment: str, overrides: tuple[str, ...]) -> Cell:
    cfg = composed(overrides)
    folder = RunFolder.of(cfg, cast(Config, cfg)).path
    shown = [word for word in overrides if not word.startswith("experiment.")]
    words = sorted(shown, key=lambda word: not word.startswith("experiment="))
    command = f"python train.py {shlex.join(words)}"
    return Cell(experiment, overrides, cfg, folder, command, trainings(cfg))


@cache
def _composed(choices: tuple[str, ...]) -> DictConfig:
    if GlobalHydra.instance().is_initialized():  # inside a job, whose search path may be longer
        return compose("train", overrides=list(choices))

    def made() -> Any:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            return OmegaConf.to_container(compose("train", overrides=list(choices)))

    cfg = OmegaConf.create(remembered(("config", *choices), made))
    OmegaConf.set_struct(cfg, True)  # as Hydra leaves it
    return cfg


def _swept(choices: tuple[str, ...]) -> dict[str, Any]:
    """Whether an experiment trains, and the grids that its file gives the sweeper."""

    def made() -> Any:
        with _hydra():
            whole = compose("train", overrides=list(choices), return_hydra_config=True)
        sweeper = whole.hydra.sweeper
        # Resolved as Hydra does on reading: what a file escapes, a job's config interpolates.
        own = {"params": sweeper.params, "grids": sweeper.grids}
        plain = {
            key: value if value is None else OmegaConf.to_container(value, resolve=True)
            for key, value in own.items()
        }
        return {"trains": whole.experiment.trains, **plain}

    return remembered(("sweeper", *choices), made)


@contextmanager
def _hydra() -> Iterator[None]:
    """Hydra, unless it is there already: inside a job, or in a caller of ours."""
    if GlobalHydra.instance().is_initialized():
        yield
        return
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        yield


@cache
def _groups() -> frozenset[str]:
    return frozenset(str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*") if path.is_dir())


def _is_choice(word: str) -> bool:
    """Whether an override picks a file of a group (and not several)."""
    (override,) = OverridesParser.create().parse_overrides([word])
    return not override.is_sweep_override() and override.key_or_group in _groups()


def _is_plain(override: Override) -> bool:
    """Whether an override changes the value of an option, and nothing else."""
    name = override.key_or_group
    grouped = name in _groups() or override.package is not None or name.startswith("hydra")
    return not (grouped or override.is_add() or override.is_force_add() or override.is_delete())


def _place(name: str) -> tuple[Any, ...]:
    """Sorts `mft_table2` before `mft_table10`, papers as the README names them."""
    paper, _, item = name.partition("_")
    papers = ("mft", "pfml", "metrix", "ccp")
    kinds = ("table", "figure", "text")
    kind = next((kind for kind in kinds if item.startswith(kind)), item)
    digits = "".join(sign for sign in item if sign.isdigit())
    order = papers.index(paper) if paper in papers else len(papers)
    return order, kinds.index(kind) if kind in kinds else len(kinds), int(digits or 0), name
