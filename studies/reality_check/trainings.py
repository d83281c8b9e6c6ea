"""The trainings of a study, and what is kept of them: tables of scores, classes and trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

import dml
from dml.config.schema import Config
from dml.config.search_space import merge_spaces
from dml.retrieval import nearest_neighbors
from dml.retrieval.embeddings import load_embeddings
from dml.retrieval.metrics import score_rankings
from dml.runs.folder.run_folder import EMBEDDINGS, RunFolder, load_config
from studies.comparison.results import IMAGES, SUFFIX, read_tables, write_tables
from studies.comparison.trainings import without_search
from studies.reality_check.declaration import Declaration

METRICS = ("map_at_r", "precision_at_1", "r_precision")
EDGE = 1.05  # ratio of a chosen value to an end of its range


class Results(NamedTuple):
    """What a study keeps of its trainings.

    Attributes:
        scores: a row per arm, length of its training in epochs, repeat and fold: test and
            validation scores in percent, steps and versions.
        classes: MAP@R of each test class in percent (mean over folds), a row per arm, length and
            repeat; the row `IMAGES` holds the number of images of each class.
        curves: validation score in percent (mean over repeats and folds), a row per arm, length
            and evaluation.
        trials: a row per arm and trial of its search: validation score in percent and values.
    """

    scores: pd.DataFrame
    classes: pd.DataFrame
    curves: pd.DataFrame
    trials: pd.DataFrame

    def write(self, folder: Path) -> None:
        """Writes each table as `<name>.csv.xz`."""
        write_tables(self._asdict(), folder)

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Reads what `write` wrote."""
        return cls(**read_tables(cls._fields, folder))

    @classmethod
    def exist(cls, folder: Path) -> bool:
        """Returns whether a folder has results."""
        return (folder / f"scores{SUFFIX}").exists()

    def add_to(self, folder: Path) -> None:
        """Writes the tables to a folder, together with the other arms that it has."""
        results = self
        if Results.exist(folder):
            results = Results.read(folder).add(self)
        results.write(folder)

    def images(self) -> pd.Series:
        """Returns the number of test images of each class."""
        rows = self.classes.set_index("arm").loc[IMAGES].drop(["epochs", "repeat"])
        return rows.astype(int)

    def class_scores(self) -> pd.DataFrame:
        """Returns `classes` with the arms as index, and no columns but the classes."""
        scores = self.classes.set_index("arm").drop(columns=["epochs", "repeat"])
        return scores.copy()  # one block in memory: rows are taken ten times as fast

    def of_length(self, epochs: Mapping[str, int]) -> Results:
        """Returns the scores of one length of training for each arm (arm → epochs)."""

        def keep(table: pd.DataFrame) -> pd.DataFrame:
            return table[(table.epochs == table.arm.map(epochs)) | (table.arm == IMAGES)]

        return self._replace(scores=keep(self.scores), classes=keep(self.classes))

    def add(self, other: Results) -> Results:
        """Returns the results of both; arms of `other` replace those of the same name."""
        merged = {}
        for name in self._fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            kept = mine[~mine.arm.isin(set(theirs.arm))]
            merged[name] = pd.concat([kept, theirs], ignore_index=True)
        return Results(**merged)


def train_arm(
    study: Declaration, arm: str, options: Sequence[str], data: Path, outputs: Path
) -> Results:
    """Searches one arm, and trains it for all lengths; or continues.

    Args:
        options: of this arm, after those of the study.
        data: the file that `study.features` makes, or the folder of datasets.
        outputs: a folder of this arm alone.
    """
    options = [f"data.root={data}", *study.options, *options]
    parts = list[tuple[pd.DataFrame, ...]]()
    for epochs in study.epochs:
        place = outputs / str(epochs)
        summary = dml.train([f"outputs={place}", *options, f"protocol.epochs={epochs}"])
        folder = Path(summary["folder"])
        if not parts:  # the search
            chosen = summary["search"]["params"]
            trials = pd.read_csv(folder / "search" / "trials.csv").drop(columns="reason")
            trials["value"] *= 100
            trials.insert(0, "arm", arm)
            edges = _edges(load_config(folder, trust=True), chosen)  # just trained
            values = [f"{name}={value}" for name, value in chosen.items()]
            options = [*without_search(options), *values]
        parts.append(_collect(arm, epochs, edges, summary))
    scores, classes, curves = map(pd.concat, zip(*parts, strict=True))
    return Results(scores, classes.drop_duplicates(["arm", "epochs", "repeat"]), curves, trials)


def _collect(
    arm: str, epochs: int, edges: str, summary: dict[str, Any]
) -> tuple[pd.DataFrame, ...]:
    """Returns the scores, classes and curves of a finished run."""
    folder = Path(summary["folder"])
    config = load_config(folder, trust=True)
    started, ended = (folder / name for name in ("command.txt", "summary.json"))
    seconds = ended.stat().st_mtime - started.stat().st_mtime  # with the search
    history = pd.read_csv(folder / "history.csv")
    models = history.groupby(["repeat", "fold"])
    stages = models.stage.max() + 1 if "stage" in history else models.size() * 0 + 1
    curves = (100 * history.groupby("step").map_at_r.mean()).rename("validation").reset_index()
    curves.insert(0, "arm", arm)
    curves.insert(1, "epochs", epochs)
    scores = [
        {
            "arm": arm,
            "epochs": epochs,
            "repeat": job["repeat"],
            "fold": job["fold"],
            **{name: 100 * job["metrics"][name] for name in METRICS},
            "validation": 100 * job["validation"][METRICS[0]],
            "untrained": 100 * job["untrained"][METRICS[0]],
            "steps": job["steps"],
            "stages": int(stages[job["repeat"], job["fold"]]),
            "edges": edges,
            "seconds": job["seconds"],
            "core_seconds": seconds * config.protocol.workers,
            "device": summary["device"],
            "versions": " ".join(f"{n} {v}" for n, v in summary["versions"].items()),
            "revision": summary["git_revision"],
        }
        for job in summary["jobs"]
    ]
    classes = _score_classes(arm, epochs, folder, summary["jobs"])
    return pd.DataFrame(scores), classes, curves


def _edges(config: Config, chosen: dict[str, float]) -> str:
    """Returns the searched options of whose open ranges the chosen value is an end.

    Open are logarithmic ranges, and the learning rates of a grid.
    """
    edges, spaces = [], merge_spaces(config.space)
    for name, value in chosen.items():
        rates = spaces[name].get("choices", []) if name == "optim.lr" else []
        low, *_, high = sorted(rates) or [spaces[name].get("low"), spaces[name].get("high")]
        if (rates or spaces[name].get("log")) and min(value / low, high / value) < EDGE:
            edges.append(name)
    return " ".join(edges)


def _score_classes(
    arm: str, epochs: int, folder: Path, jobs: Sequence[dict[str, Any]]
) -> pd.DataFrame:
    """Returns the scores of the test classes, from the stored embeddings of each model."""
    rows = []
    for job in jobs:
        name = "repeat{repeat}-fold{fold}".format(**job)
        embeddings = load_embeddings(RunFolder(folder).job(name) / EMBEDDINGS, torch.device("cpu"))
        labels = embeddings.query_labels
        relevant = torch.bincount(labels)[labels] - 1
        found = nearest_neighbors(embeddings.query, k=int(relevant.max())).indices
        map_at_r = score_rankings(labels[found] == labels[:, None], relevant)[2]
        assert abs(map_at_r.mean().item() - job["metrics"][METRICS[0]]) < 1e-6  # the same network
        means = pd.Series(100 * map_at_r.numpy()).groupby(labels.numpy()).mean()
        rows.append({"arm": arm, "epochs": epochs, "repeat": job["repeat"], **means})
    table = pd.DataFrame(rows).groupby(["arm", "epochs", "repeat"], as_index=False).mean()
    images = {"arm": IMAGES, "epochs": 0, "repeat": 0} | Counter(labels.tolist())
    return pd.concat([pd.DataFrame([images]), table]).rename(columns=str)
