"""Catalog of experiments: every table and figure of the papers as a list of runs.

for cell in list_cells("mft_table1", ["data=cub"]):
    print(cell.command, cell.folder.exists())

Composing the configs of all experiments takes minutes, and a report or a plan needs every one of
them. They depend on the files of `configs/`, the code of `dml/config` and a few packages alone, so
the compositions and the cells of whole experiments are kept as JSON files in the user's cache
folder, below a digest of these: after a change of any of them, everything is composed anew. What is
in the cache needs no Hydra, which is imported late: this takes a tenth of a second.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from dml.config.check import check
from dml.config.identity import digest, identity, protocol_id, result_id
from dml.config.presets import apply_params, split_params, split_trust
from dml.config.schema import ExperimentConfig
from dml.core.atomic_io import write_text
from dml.core.errors import ConfigError, nearest
from dml.core.installation import CONFIGS, PACKAGE, shell_command
from dml.core.metric_names import LABELS
from dml.core.option_values import SPLITS
from dml.core.regular_files import read_regular
from dml.results.published import ResultKey
from dml.runs.folder.run_folder import RunFolder

PAPERS = ("mft", "pfml", "metrix", "ccp")  # in the order of docs/experiments.md
KINDS = ("table", "figure", "text")
# Metrics of experiments that name none; the usual selection metric is first.
METRICS = [*sorted(LABELS, key=lambda name: name != "map_at_r"), "best_epoch"]
FIGURES = ["learning_curves", "neighbors"]  # of runs of no experiment
FOLDERS_KEPT = 4  # digests of a few checkouts, or of the last few edits


class Options(dict[str, Any]):
    """A resolved config: nested dictionaries, whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True)
class Cell:
    """One run of an experiment.

    Attributes:
        experiment: id of the experiment.
        overrides: options that select this cell, as Hydra's sweeper passes them to the job.
        options: resolved config, with the values of `experiment.params`.
        folder: run folder; it holds `summary.json` once the run is finished.
        command: command that runs this cell and no other.
        trainings: models to train: trials × folds of the search, repeats × folds.
    """

    experiment: str
    overrides: tuple[str, ...]
    options: Options
    folder: Path
    command: str
    trainings: int

    @cached_property
    def config(self) -> DictConfig:
        """The options as Hydra composes them, before interpolation."""
        return compose_config(self.overrides)

    def result_keys(self) -> Iterator[ResultKey]:
        """Yields the keys of the cell's results, one per evaluation."""
        cfg: Any = self.options
        evaluations = ["single"]
        if SPLITS[cfg.protocol.splits].folds > 1:
            evaluations = ["separated", "concatenated"]
        for evaluation in evaluations:
            yield ResultKey(
                cfg.data.name,
                cfg.backbone.name,
                cfg.embedder.size,
                protocol_id(cfg),  # the ids read attributes only
                evaluation,
                result_id(cfg),
                cfg.experiment.get("setting") or "",
            )


def experiment_ids() -> list[str]:
    """Returns the ids of all experiments, by paper and in the order of its tables and figures."""
    names = [path.stem for path in (CONFIGS / "experiment").glob("*.yaml")]
    return sorted(names, key=_sort_key)


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


def list_cells(
    experiment: str, overrides: Sequence[str] = (), outputs: str = "outputs"
) -> list[Cell]:
    """Returns the runs of `python train.py experiment=<experiment> <overrides>` in order.

    Args:
        experiment: one of `experiment_ids()`.
        overrides: options as on the command line.
        outputs: folder of run folders.

    Returns:
        The runs; none for an experiment that a script draws without training.

    Raises:
        ConfigError: the experiment does not exist, or options are wrong.
        HydraException: the overrides do not compose.
    """
    ids = experiment_ids()
    if experiment not in ids:
        raise ConfigError([f"experiment: no '{experiment}'{nearest(experiment, ids)}"])
    whole = f"experiment={experiment}"
    if overrides:
        composed = _compose_cells(whole, *overrides)
    else:
        composed = _cached(whole, partial(_compose_cells, whole), Options)
    cells = []
    for job, options in composed:
        if outputs != "outputs":
            job.insert(job.index(whole) + 1, f"outputs={outputs}")
            options["outputs"] = outputs
        cells.append(_make_cell(experiment, tuple(job), options))
    return cells


def _compose_cells(*words: str) -> list[tuple[list[str], Options]]:
    """Returns overrides and options of the cells that a command runs."""
    from dml.config.grids import expand_grids

    _, typed = split_trust(words)
    _, overrides = split_params(typed)
    _, choices = _split(overrides)
    chosen = [word.input_line for word in choices if not word.is_sweep_override()]
    cfg, sweeper = _compose(tuple(chosen))
    if not cfg.experiment.trains:
        return []
    jobs = expand_grids(sweeper["params"], sweeper["grids"], words)
    if len(words) > 1:  # the options of a user; the shipped ones are right
        for job in jobs:
            check(compose_config(job))
    plain = [(job, OmegaConf.to_container(compose_config(job), resolve=True)) for job in jobs]
    return json.loads(json.dumps(plain), object_hook=Options)


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


def _make_cell(experiment: str, overrides: tuple[str, ...], cfg: Any) -> Cell:
    folder = RunFolder.named(cfg, digest(cfg)).path
    words = [word for word in overrides if not word.startswith("experiment.")]
    words.sort(key=lambda word: not word.startswith("experiment="))
    command = f"{shell_command('train')} {shlex.join(words)}"
    trainings = 0
    if cfg.protocol.epochs:
        trials = cfg.search.trials if cfg.search else 0
        trainings = (cfg.protocol.repeats + trials) * SPLITS[cfg.protocol.splits].folds
    return Cell(experiment, overrides, cfg, folder, command, trainings)


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


def _sort_key(name: str) -> tuple[int, int, int, str]:
    """Sorts `mft_table2` before `mft_table10`, and papers as in `PAPERS`."""
    paper, _, item = name.partition("_")
    kind = item.rstrip("0123456789")
    order = (*PAPERS, paper).index(paper), (*KINDS, kind).index(kind)
    return *order, int(item[len(kind) :] or 0), name


@cache
def _cache_folder() -> Path:
    """Returns the folder for the present config files; the oldest of the others are deleted."""
    digest = sha256()
    for name in ("hydra-core", "omegaconf", "timm"):
        digest.update(f"\n{name} {version(name)}".encode())
    files = [Path(__file__)]
    files += CONFIGS.rglob("*.yaml")
    files += (PACKAGE / "config").glob("*.py")
    for path in sorted(files):
        digest.update(f"\n{path.relative_to(PACKAGE.parent)}\n".encode())
        digest.update(path.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "dml-benchmark" / "compositions" / digest.hexdigest()[:16]
    with suppress(OSError):
        stored = sorted(folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in stored[:-FOLDERS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return folder
