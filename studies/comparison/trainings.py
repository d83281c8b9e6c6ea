"""The searches of a comparison with their training runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import dml
from dml.config.search_space import merge_spaces
from dml.core.errors import UserError
from dml.core.plain_text import print_plain
from dml.retrieval import nearest_neighbors
from dml.retrieval.embeddings import load_embeddings
from dml.retrieval.metrics import score_rankings
from dml.runs.folder.run_folder import EMBEDDINGS, RunFolder, load_config
from studies.comparison.commits import find_code_commit
from studies.comparison.declaration import Declaration
from studies.comparison.depthwise import faster_depthwise, is_slow_processor
from studies.comparison.processor_time import ProcessorTime
from studies.comparison.results import Results
from studies.comparison.table_files import IMAGES, METRICS

SEARCH = ("search", "space", "+space", "++space")  # beginnings of the options of a search
CLONE = Path(__file__).parents[2]
SEED_STEP = 1000  # between the seeds of two searches of an arm
_Tables = tuple[pd.DataFrame, ...]  # scores, classes and curves of a length
EDGE = 1.05  # ratio of a chosen value to an end of its range


def train_search(
    study: Declaration, arm: str, options: Sequence[str], number: int, data: Path, outputs: Path
) -> Results:
    """Searches the values of one arm and trains them for all lengths; or continues.

    A length whose loss does not stay finite has no rows.

    Args:
        arm: its name in the tables.
        options: of this arm, after those of the comparison.
        number: of the search, from which the seeds of trials and training runs follow.
        data: the file that `study.features` makes, or the folder that `study.images` makes.
        outputs: a folder of this arm and search alone.

    Raises:
        UserError: the loss of the shortest training does not stay finite.
    """
    seed = study.first_seed + SEED_STEP * number
    options = [f"data.root={data}", *study.options, *options, f"seed={seed}"]
    lengths = list[_Tables]()
    time = ProcessorTime(outputs / "processor_seconds.json")
    for epochs in study.epochs:
        print_plain(f"{arm}, search {number}, {epochs} epochs")
        try:
            with time.measure(epochs):
                summary = _train_length(study, options, epochs, outputs)
        except UserError as error:
            if not lengths or "not finite" not in str(error):
                raise
            print_plain(f"{arm}, search {number}, {epochs} epochs: left out: {error}")
            continue
        if not lengths:
            folder, chosen = Path(summary["folder"]), summary["search"]["params"]
            trials = _read_trials(folder)
            edges = " ".join(_find_edges(folder, chosen))
            values = [f"{name}={value}" for name, value in chosen.items()]
            options = [*without_search(options), *values]
        lengths.append(_collect(summary, edges, time.seconds(epochs)))
    scores, classes, curves = (pd.concat(tables) for tables in zip(*lengths, strict=True))
    results = Results(scores, classes, curves, trials)
    named = {}
    for name, table in results._asdict().items():
        named[name] = _name_rows(table, arm, number)
    return Results(**named)


def _train_length(
    study: Declaration, options: Sequence[str], epochs: int, outputs: Path
) -> dict[str, Any]:
    """Returns the summary of the search or training of one length."""
    words = [
        f"outputs={outputs / str(epochs)}",
        *options,
        f"protocol.epochs={epochs}",
        f"protocol.evaluate_every={study.evaluate_every(epochs)}",
    ]
    with faster_depthwise():
        return dml.train(words)


def without_search(options: Sequence[str]) -> list[str]:
    """Returns the options of `train.py` that do not belong to a search."""
    return [option for option in options if not option.startswith(SEARCH)]


def _name_rows(table: pd.DataFrame, arm: str, number: int) -> pd.DataFrame:
    """Returns a table with the columns `arm` and `search` in front; counts of images once."""
    table = table.drop_duplicates().reset_index(drop=True)
    names = pd.Series(arm, table.index)
    numbers = pd.Series(number, table.index)
    if "arm" in table:
        is_count = table.pop("arm") == IMAGES
        names[is_count], numbers[is_count] = IMAGES, 0
    table.insert(0, "arm", names)
    table.insert(1, "search", numbers)
    return table


def _read_trials(folder: Path) -> pd.DataFrame:
    trials = pd.read_csv(folder / "search" / "trials.csv").drop(columns="reason")
    trials["value"] *= 100
    return trials


def _find_edges(folder: Path, chosen: Mapping[str, float]) -> list[str]:
    """Returns the searched options of which the chosen value is an end.

    Of a logarithmic range, or of choices that are numbers.
    """
    spaces = merge_spaces(load_config(folder, trust=True).space)  # just trained
    edges = []
    for name, value in chosen.items():
        space = spaces[name]
        choices = space.get("choices")
        if choices and isinstance(value, float | int):
            space = {"low": min(choices), "high": max(choices), "log": True}
        if space.get("log") and min(value / space["low"], space["high"] / value) < EDGE:
            edges.append(name)
    return edges


def _collect(summary: Mapping[str, Any], edges: str, cost: float) -> _Tables:
    """Returns the scores, classes and curves of a finished run.

    Args:
        summary: of the run.
        edges: options that were chosen at the end of a range.
        cost: processor time in seconds.
    """
    folder = Path(summary["folder"])
    epochs = load_config(folder, trust=True).protocol.epochs
    history = pd.read_csv(folder / "history.csv")
    stages = None
    if "stage" in history:
        stages = 1 + history.set_index(["fold", "step"]).stage
    curves = (100 * history.groupby("step").map_at_r.mean()).rename("validation").reset_index()
    curves.insert(0, "epochs", epochs)
    scores = []
    for job in summary["jobs"]:
        row = {"epochs": epochs, "fold": job["fold"]}
        for name in METRICS:
            row[name] = 100 * job["metrics"][name]
        row |= {
            "validation": 100 * job["validation"][METRICS[0]],
            "untrained": 100 * job["untrained"][METRICS[0]],
            "steps": job["steps"],
            "best_step": job["best_step"],  # whose weights are tested
            "stages": 1,
            "edges": edges,
            "processor_seconds": cost / len(summary["jobs"]),
            "device": _describe_device(summary["device"]),
            "versions": " ".join(f"{n} {v}" for n, v in summary["versions"].items()),
            "revision": find_code_commit(summary["git_revision"], CLONE),
        }
        if stages is not None:
            row["stages"] = int(stages[job["fold"], job["best_step"]])
        scores.append(row)
    classes = _score_classes(folder, summary["jobs"])
    classes.insert(0, "epochs", classes.arm.map({IMAGES: 0}).fillna(epochs).astype(int))
    return pd.DataFrame(scores), classes, curves


def _describe_device(device: str) -> str:
    """Returns a device; with what rounds differently there."""
    return f"{device} without AVX-512" if is_slow_processor() else device


def _score_classes(folder: Path, jobs: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Returns the scores of the test classes, from the stored embeddings of each fold's model.

    Rows: `arm` `IMAGES` with the number of images, and an empty `arm` with the means over folds.
    """
    rows = []
    for job in jobs:
        name = "repeat{repeat}-fold{fold}".format(**job)
        embeddings = load_embeddings(RunFolder(folder).job(name) / EMBEDDINGS, torch.device("cpu"))
        labels = embeddings.query_labels
        relevant = torch.bincount(labels)[labels] - 1
        neighbors = nearest_neighbors(embeddings.query, k=int(relevant.max())).indices
        map_at_r = score_rankings(labels[neighbors] == labels[:, None], relevant)[2]
        assert abs(map_at_r.mean().item() - job["metrics"][METRICS[0]]) < 1e-6  # the same network
        rows.append(pd.Series(100 * map_at_r.numpy()).groupby(labels.numpy()).mean())
    means = pd.DataFrame(rows).mean()
    images = pd.Series(Counter(labels.tolist()))
    table = pd.DataFrame([images, means]).rename(columns=str)
    table.insert(0, "arm", [IMAGES, ""])
    return table
