"""Catalog of experiments: every table and figure of the papers as a list of runs.

for cell in list_cells("mft_table1", ["data=cub"]):
    print(cell.command, cell.folder.exists())
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dml.config.compositions import Options, compose_cells, load_node
from dml.config.identity import dataset_id, digest, protocol_id, result_id
from dml.config.schema import ExperimentConfig
from dml.core.errors import ConfigError, nearest
from dml.core.installation import CONFIGS, shell_command
from dml.core.metric_names import LABELS
from dml.core.option_values import SPLITS
from dml.results.published import ResultKey
from dml.runs.folder.run_folder import RunFolder

PAPERS = ("mft", "pfml", "metrix", "ccp")  # in the order of docs/experiments.md
KINDS = ("table", "figure", "text")
# Metrics of experiments that name none; the usual selection metric is first.
METRICS = [*sorted(LABELS, key=lambda name: name != "map_at_r"), "best_epoch"]
FIGURES = ["learning_curves", "neighbors"]  # of runs of no experiment


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

    def result_keys(self) -> Iterator[ResultKey]:
        """Yields the keys of the cell's results, one per evaluation."""
        cfg: Any = self.options
        evaluations = ["single"]
        if SPLITS[cfg.protocol.splits].folds > 1:
            evaluations = ["separated", "concatenated"]
        for evaluation in evaluations:
            yield ResultKey(
                dataset_id(cfg.data.name, cfg.data.crop, cfg.data.images),
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


def find_problem(name: str, known: Sequence[str] | None = None) -> str:
    """Returns why there is no experiment of a name, with what helps; empty: there is one.

    Args:
        name: as a user has typed it.
        known: names that exist; None: `experiment_ids()`.
    """
    known = experiment_ids() if known is None else known
    if name in known:
        return ""
    if "," in name:
        return f"experiment: {name} are several; name one at a time"
    hint = nearest(name, known) or f"; one of {' | '.join(known)}"
    return f"experiment: no '{name}'{hint}"


def load_experiment(name: str) -> ExperimentConfig:
    """Returns the node `experiment` of an experiment's file; no config is composed.

    Args:
        name: id of an experiment, or a folder of runs of no experiment, which has no file.
    """
    node = load_node(name)
    if name not in experiment_ids():
        node["title"] = "Own runs" if name == "single" else name
        node["figures"] = FIGURES
    node["id"] = name
    node["metrics"] = node["metrics"] or METRICS
    return ExperimentConfig(**node)


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
    problem = find_problem(experiment)
    if problem:
        raise ConfigError([problem])
    cells = []
    for job, options in compose_cells(experiment, overrides):
        if outputs != "outputs":
            job.insert(job.index(f"experiment={experiment}") + 1, f"outputs={outputs}")
            options["outputs"] = outputs
        cells.append(_make_cell(experiment, tuple(job), options))
    return cells


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


def _sort_key(name: str) -> tuple[int, int, int, str]:
    """Sorts `mft_table2` before `mft_table10`, and papers as in `PAPERS`."""
    paper, _, item = name.partition("_")
    kind = item.rstrip("0123456789")
    order = (*PAPERS, paper).index(paper), (*KINDS, kind).index(kind)
    return *order, int(item[len(kind) :] or 0), name
