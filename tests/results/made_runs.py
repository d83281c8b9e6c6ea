"""Run folders written by hand: what a report reads, without training anything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dml.config.compositions import Options
from dml.config.identity import digest, protocol_id, result_id
from dml.config.schema import ExperimentConfig
from dml.results.catalog import Cell
from dml.results.report import Report, Row, build_report

NODE = {
    "title": "made by hand",
    "source": "mft",
    "tables": ["T1", "T3"],
    "metrics": ["map_at_r", "precision_at_1"],
    "figures": ["learning_curves"],
}
MLRC = ("protocol=mlrc", "data=cub")
TEN = [0.2205, 0.2215, 0.2211, 0.2209, 0.2212, 0.2207, 0.2218, 0.2210, 0.2206, 0.2207]


def node(name: str, **more: Any) -> tuple[str, ...]:
    """Overrides that make a run one of an experiment."""
    values = {"id": name, **NODE, **more}
    return tuple(f"experiment.{key}={_word(value)}" for key, value in values.items())


def _word(value: Any) -> str:
    return f"[{','.join(value)}]" if isinstance(value, list) else f"'{value}'"


def make_cell(cfg: DictConfig, loss: str = "", overrides: tuple[str, ...] = ()) -> Cell:
    """A cell of an experiment; its command holds signs that HTML must escape."""
    command = f"python train.py loss={loss} <&>"
    options = json.loads(json.dumps(OmegaConf.to_container(cfg, resolve=True)), object_hook=Options)
    words = overrides or (f"loss={loss}",)
    return Cell(cfg.experiment.id, words, options, Path("none"), command, 1)


def build(cells: Sequence[Cell], root: Path, **changes: Any) -> Report:
    """The report of an experiment of these cells."""
    values = {**cells[0].options.experiment, **changes}
    return build_report(ExperimentConfig(**values), cells, root)


def find_row(report: Report, method: str, evaluation: str = "separated") -> Row:
    """The only row of a method."""
    keys = (method, evaluation)
    (row,) = [row for row in report.rows if (row.key.method, row.key.evaluation) == keys]
    return row


def spread_over_folds(values: Sequence[float]) -> list[list[float]]:
    """Four folds of each repeat, whose mean is its value."""
    return [[value - 0.01, value, value, value + 0.01] for value in values]


def write_run(
    root: Path,
    cfg: DictConfig | Options,
    separated,
    concatenated=None,
    metric="map_at_r",
    **more: Any,
) -> Path:
    """A finished run whose `metric` is `separated[repeat][fold]`, as shares of one."""
    if isinstance(cfg, Options):
        cfg = OmegaConf.create(json.dumps(cfg))  # JSON is YAML
    folder = root / cfg.experiment.id / "some-run" / f"seed{cfg.seed}-{digest(cfg)}"
    folder.mkdir(parents=True)
    jobs = [
        {
            "repeat": repeat,
            "fold": fold,
            "metrics": {metric: value, "precision_at_1": value},
            "best_epoch": 3.0,
            "best_step": 30,
            "steps": 40,
            "seconds": 8.0,
        }
        for repeat, folds in enumerate(separated)
        for fold, value in enumerate(folds)
    ]
    joined = concatenated and {
        "embedding_size": 4 * cfg.embedder.size,
        "repeats": [
            {"repeat": repeat, "metrics": {metric: value, "precision_at_1": value}}
            for repeat, value in enumerate(concatenated)
        ],
    }
    summary = {
        "result_id": result_id(cfg),
        "data": cfg.data.name,
        "stand_in": cfg.data.stand_in,
        "protocol": protocol_id(cfg),
        "evaluation": "separated" if joined else "single",
        "selected_by": f"{cfg.protocol.select_metric} on {cfg.protocol.selected_on}",
        "backbone": cfg.backbone.name,
        "loss": cfg.loss.name,
        "method": cfg.method.name,
        "name": cfg.name,
        "seed": cfg.seed,
        "embedding_size": cfg.embedder.size,
        "metrics": {metric: {}},
        "concatenated": joined,
        "jobs": jobs,
        "device": "hand",
        "precision": "fp32",
        "versions": {"torch": "2"},
        "git_revision": "0123456789ab",
        "config": OmegaConf.to_container(cfg, resolve=True),
        **more,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(cfg, resolve=True))
    return folder


def write_history(
    folder: Path, curves: Mapping[tuple[int, int], Sequence[float]], column: str = "map_at_r"
) -> None:
    """`history.csv` with one value per epoch of ten steps, by repeat and fold."""
    lines = [f"repeat,fold,epoch,step,{column}"]
    for (repeat, fold), values in curves.items():
        lines += [f"{repeat},{fold},{e}.0,{10 * e},{v}" for e, v in enumerate(values)]
    (folder / "history.csv").write_text("\n".join(lines) + "\n")
