"""Runs as tables: all of them, configurations by score, two in comparison, a sweep; removal."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.filesize import decimal
from rich.text import Text

from dml.core.errors import UserError, nearest
from dml.core.installation import shell_command
from dml.core.metric_names import is_retrieval_metric, metric_label, tabled
from dml.core.progress import format_epoch
from dml.core.statistics import welch
from dml.results.frame import (
    GROUPS,
    NAMED,
    NAMES,
    common_names,
    comparable,
    differing_options,
    estimate,
    format_option,
    make_frame,
    one_per_run,
    option_columns,
)
from dml.results.nearest import describe_nearest, find_nearest
from dml.results.tables import Cell, Column, Table, csv_text, terminal_table
from dml.runs.folder.stored_run import State, StoredRun, is_run, read_run

AT_WORK = (State.RUNNING, State.SEARCHING)


def find_run(word: str, runs: pd.DataFrame) -> Any:
    """Returns the run with an id, the beginning of an id, a `name=`, or a folder.

    Raises:
        UserError: no run, or several.
    """
    if is_run(Path(word)):
        return one_per_run(make_frame([read_run(Path(word))])).iloc[0]
    found = runs[(runs.id == word) | (runs["name"] == word)]
    if found.empty and len(word) >= 3:
        found = runs[runs.id.str.startswith(word)]
    if len(found) == 1:
        return found.iloc[0]
    if found.empty:
        hint = f"{shell_command('runs')} lists them"
        raise UserError(f"runs: '{word}' is neither the id, name or folder of a run; {hint}")
    several = ", ".join(found.id)
    raise UserError(f"runs: '{word}' means several runs: {several}; type one of these ids")


def select_runs(runs: pd.DataFrame, words: Sequence[str]) -> pd.DataFrame:
    """Returns the runs that meet all conditions: `loss=ms,mf*` `state=finished` `epochs=60`.

    A name is `state`, `id`, a group, or an option by its dotted name or its last part; one of the
    values must match, in which `*` stands for any characters.

    Raises:
        UserError: a name that no run has, or a state that does not exist.
    """
    if not words:
        return runs
    texts = [_texts_by_name(run) for run in runs.itertuples()]
    names, kept = set().union(*texts), np.ones(len(runs), dtype=bool)
    for name, _, text in (word.partition("=") for word in words):
        wanted = text.split(",")
        if names and name not in names:
            hint = nearest(name, names) or "; filter by state, loss, data, seed, or any option"
            raise UserError(f"{name}: no run has such an option{hint}")
        for value in wanted if name == "state" else ():
            if value not in list(State) and "*" not in value:
                hint = nearest(value, State) or f"; one of {' | '.join(State)}"
                raise UserError(f"state: '{value}' does not exist{hint}")
        matches = (
            any(_is_equal(have, want) for have in run.get(name, ()) for want in wanted)
            for run in texts
        )
        kept &= np.fromiter(matches, dtype=bool)
    return runs[kept]


def _texts_by_name(run: Any) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for name, value in run.options.items():
        for key in {name, name.rpartition(".")[2]}:
            texts.setdefault(key, []).append(format_option(value))
    return {**texts, **{name: [str(getattr(run, name))] for name in ("state", "id", *NAMES)}}


def _is_equal(have: str, want: str) -> bool:
    try:
        return float(have) == float(want)
    except ValueError:
        return fnmatchcase(have.lower(), want.lower())


def run_table(runs: pd.DataFrame, width: int, order: str = "") -> list[Text]:
    """Returns the table of runs, and a line for each problem; `order` is for the title."""
    epochs = [
        "" if pd.isna(best) else f"{format_epoch(best)}/{last}"
        for best, last in zip(runs.epoch, runs.epochs, strict=True)
    ]
    seeds = ["" if pd.isna(seed) else str(seed) for seed in runs.seed]
    columns = [
        Column("id", runs.id),
        Column("state", [Cell(state, state) for state in runs.state]),
        *_option_columns(runs),
        *([Column("seed", seeds, right=True)] if len(set(seeds)) > 1 else []),
        *_score_columns(runs, lambda metric: list(map(_format_score, runs.get(metric, ())))),
        *_published_column(runs),
        Column("epoch", epochs, 3, True),
        Column("age", list(map(format_age, runs.age)), 2, True),
        Column("size", list(map(decimal, runs["size"])), 6, True),
    ]
    names = common_names(runs)
    title = f"{len(runs)} run{'s' if len(runs) != 1 else ''}{order}{f': {names}' if names else ''}"
    problems = zip(runs.id, runs.problem, strict=True)
    lines = [Text(f"{id}  {problem}", "red") for id, problem in problems if problem]
    return [terminal_table(Table(title, columns), width), *lines]


def _published_column(runs: pd.DataFrame) -> list[Column]:
    """Returns the column of the nearest published numbers; none without any."""
    texts = [found.short if (found := find_nearest(run)) else "" for run in runs.run]
    return [Column("published (what differs)", texts, 7)] if any(texts) else []


def _format_score(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.2f}"


def _score_columns(runs: pd.DataFrame, texts: Callable[[str], list[str]]) -> list[Column]:
    """Returns the score that selects the epoch, and test scores, before training too.

    Args:
        runs: rows of the table.
        texts: returns the cells for a metric; an empty list leaves its column out.
    """
    selected = runs.selected_by.dropna().unique()
    title = "selected"
    if len(selected) == 1:  # `MAP@R val.`, or `MAP@R` of test images
        metric, _, classes = selected[0].partition(" on ")
        title = metric_label(metric).replace("Recall", "R")
        title += "" if classes == "test" else f" {classes[:3]}."
    columns = [("score", title, 0), ("untrained_map_at_r", "untrained", 4)]
    columns += [] if list(selected) == ["map_at_r on test"] else [("map_at_r", "MAP@R", 2)]
    columns += [("recall_at_1", "R@1", 5)]
    return [Column(t, cells, rank, True) for metric, t, rank in columns if (cells := texts(metric))]


def _option_columns(runs: pd.DataFrame) -> list[Column]:
    """Returns columns of the names and options in which runs differ, the optional ones last."""
    names = [" ".join(name.split())[:24] for name in runs["name"].fillna("")]
    options = {"name": names} if len(set(names)) > 1 else {}
    ranks = {"name": 1, **dict.fromkeys(GROUPS, 0)}
    columns = enumerate({**options, **option_columns(runs)}.items(), start=10)
    return [Column(title, texts, ranks.get(title, place)) for place, (title, texts) in columns]


def rank_runs(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Returns the rows of each finished configuration, best first within data and protocol."""
    finished = frame[(frame.state == "finished") & (frame.evaluation != "concatenated")]
    groups = [own for _, own in finished.groupby("configuration", sort=False)]
    return sorted(
        groups, key=lambda own: (*own[["data", "protocol"]].iloc[0], -own["score"].mean())
    )


def best_table(groups: Sequence[pd.DataFrame], width: int) -> list[Text]:
    """Returns the table of configurations (`rank_runs`), joined over seeds and repeats."""

    def texts(metric: str) -> list[str]:
        found = [estimate(own, metric) for own in groups if "untrained" not in metric]
        return ["" if one is None else one.format(2, "std") for one in found]

    first = pd.concat([own.head(1) for own in groups])
    ranks = first.groupby(["data", "protocol"]).cumcount() + 1
    ids = [list(own.id.unique()) for own in groups]
    columns = [
        Column("rank", list(map(str, ranks)), right=True),
        *_option_columns(first),
        Column("runs", [str(len(own)) for own in ids], right=True),
        *_score_columns(first, texts),
        *_published_column(first),
        Column("ids", [" ".join([*own[:2], *("…" for _ in own[2:3])]) for own in ids], 6),
    ]
    by = " or ".join(f"{one} images" for one in first.selected_by.unique())
    text = f"percent; ± standard deviation over seeds and repeats, of two both; ranked by {by}"
    return [terminal_table(Table(common_names(first), columns, text), width)]


def compare_runs(
    first: Any, second: Any, frame: pd.DataFrame, folder: Path, width: int
) -> list[Text]:
    """Returns tables and lines that compare two runs, and draws their curves.

    Args:
        first, second: of `find_run`.
        frame: all runs, among which those with other seeds are found for the test.
        folder: of the picture.
        width: characters of the terminal.

    Raises:
        UserError: the same run twice, or one that cannot be read.
    """
    runs = (first, second)
    for run in runs:
        problem = run.problem or "it has no config"
        if not run.options:
            raise UserError(f"compare: {run.id} is {run.state}: {problem}")
    if Path(first.folder).resolve() == Path(second.folder).resolve():
        raise UserError(f"compare: {first.id} is one run; type two ids")
    names = differing_options([run.options for run in runs])
    rows = [
        (name, *(format_option(run.options.get(name, "")) for run in runs), "")
        for name in names
        if not name.endswith(NAMED[1:])
    ] or [("no option differs that decides the result", "", "", "")]
    metrics = tabled(name for name in first.index if is_retrieval_metric(name))
    scores = [
        (label, f"{first[n]:.2f}", f"{second[n]:.2f}", f"{second[n] - first[n]:+.2f}")
        for n, label in metrics.items()
        if pd.notna(first[n]) and pd.notna(second.get(n))
    ]
    titles = ("option; test, percent", first.id, second.id, "difference")
    cells = zip(*(*rows, *scores), strict=True)
    columns = [Column(title, texts) for title, texts in zip(titles, cells, strict=True)]
    shown = [terminal_table(Table("", columns[: 4 if scores else 3], "", len(scores)), width)]
    shown += [Text(), Text(_describe_test(first, second, frame))]
    if first.selected_by == second.selected_by:
        shown += _draw_curves(pd.DataFrame(runs), folder / f"{first.id}-{second.id}.png")
    return shown


def _describe_test(first: Any, second: Any, frame: pd.DataFrame) -> str:
    """Returns a line about Welch's test between the configurations of two runs.

    Runs of equal seeds are not paired: what a seed draws differs between losses.
    """
    pair = (first.configuration, second.configuration)
    if len(set(pair)) == 1:
        return "no test: the runs differ only in seed and repeats"
    own = frame[frame.evaluation != "concatenated"]
    a, b = (estimate(own[own.configuration == one], "map_at_r") for one in pair)
    if a is None or b is None or min(a.n, b.n) < 2:
        return "no test: it needs two or more seeds or repeats of both"
    p_value = welch(a.moments, b.moments)
    shown = "all scores are equal" if p_value is None else f"p = {p_value:.3g}"
    shown = f"{b.mean - a.mean:+.2f} points, {shown} (Welch's t-test)"
    return f"MAP@R of {a.n} and {b.n} models: {shown}"


def _draw_curves(runs: pd.DataFrame, path: Path) -> list[Text]:
    """Draws the curves of runs, seeds joined; returns the line that names the picture."""
    from dml.results.figures import write_curves  # late: lists draw nothing

    first = runs.drop_duplicates("configuration")
    options = option_columns(first)
    groups = []
    for place, run in enumerate(first.itertuples()):
        texts = {title: cells[place] for title, cells in options.items() if cells[place]}
        label = ", ".join(t if name in GROUPS else f"{name}={t}" for name, t in texts.items())
        own = runs[runs.configuration == run.configuration].run
        groups.append((run.name or label or run.loss, list(own)))
    metric, _, classes = first.selected_by.iloc[0].partition(" on ")
    drawn = write_curves(groups, metric, f"{common_names(runs)}, {classes} images", path)
    return [Text(f"curves      {path}")] if drawn else []


def summarize_sweep(folders: Iterable[Path], outputs: Path, width: int) -> list[Text]:
    """Returns the table of the finished runs of a multirun, and draws their curves.

    Configurations with several seeds are followed by their means.

    Args:
        folders: of the runs; those without a finished run are left out.
        outputs: parent of the run folders.
        width: characters of the terminal.

    Returns:
        Texts to print; of one finished run, the nearest published number.
    """
    found = [read_run(path) for path in dict.fromkeys(folders) if is_run(path)]
    frame = make_frame(run for run in found if run.state == State.FINISHED)
    if frame.folder.nunique() < 2:
        return [Text(text) for run in frame.run[:1] if (text := describe_nearest(run))]
    groups = rank_runs(frame)
    runs = one_per_run(pd.concat(groups))
    shown = run_table(runs, width, ", best first")
    shown.append(Text(f"percent, at the best epoch by {', '.join(runs.selected_by.unique())}"))
    if len(groups) < len(runs):
        shown += [Text(), *best_table(groups, width)]
    same = runs[runs.selected_by == runs.selected_by.iloc[0]]
    ids = hashlib.sha256(" ".join(sorted(runs.id)).encode()).hexdigest()[:8]
    name = "-".join(option_columns(runs))[:40] or "seed"
    shown += _draw_curves(same, outputs / "sweeps" / f"{name}-{ids}" / "curves.png")
    return [*shown, Text(f"run folders {outputs}/*/*/*-<id>")]


def to_json(runs: pd.DataFrame) -> str:
    """Returns a list of objects: scores in percent, age in seconds, size in bytes."""
    plain = runs.drop(columns=["run", "configuration"])
    text: str = plain.to_json(orient="records", indent=2, force_ascii=False)
    return text + "\n"


def to_csv(runs: pd.DataFrame) -> str:
    """Returns a line per run; of the options, those in which the runs differ."""
    names = differing_options([comparable(one) for one in runs.options])
    options = pd.DataFrame(list(runs.options), index=runs.index, columns=names)
    shown = runs.drop(columns=["run", "configuration", "options"])
    return csv_text(pd.concat([shown, options], axis=1))


def format_age(seconds: float) -> str:
    """Returns a duration in its largest unit: `3 d`, `2 h`, `5 min` or `0 s`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"


@dataclass(frozen=True)
class Removal:
    """A file or folder to remove.

    Attributes:
        path: of the file or folder.
        run: folder of the run that it belongs to.
        reason: a few words.
        size: bytes.
    """

    path: Path
    run: Path
    reason: str
    size: int


def plan_removal(runs: Iterable[StoredRun]) -> list[Removal]:
    """Returns the folders of whole runs.

    Raises:
        UserError: a process is at work in one of them.
    """
    removals = []
    for run in runs:
        if run.state in AT_WORK:
            raise UserError(f"rm: {run.id} is {run.state}; stop it first (Ctrl-C in its terminal)")
        removals.append(Removal(run.folder, run.folder, f"{run.state} run", run.size))
    return removals


def plan_cleaning(runs: Iterable[StoredRun]) -> list[Removal]:
    """Returns unused files.

    They are folders of runs without an evaluation, the trials of finished runs, and incomplete
    files of killed processes. Runs that are being trained keep all files.
    """
    from dml.runs.folder.run_folder import RunFolder  # late: lists need none

    removals: list[Removal] = []
    for run in (run for run in runs if run.state not in AT_WORK):
        found = [(path, "half-written") for path in run.folder.rglob(".*.partial")]
        if run.state == State.EMPTY:
            found = [(run.folder, "set-up without results")]
        elif run.state == State.FINISHED:
            trials = RunFolder(run.folder).trials
            found += [(trials, "trials of a finished search")] if trials.is_dir() else []
        for path, reason in found:
            files = (file for file in (path, *path.rglob("*")) if file.is_file())
            size = sum(file.lstat().st_size for file in files)
            removals.append(Removal(path, run.folder, reason, size))
    return removals


def remove(removals: Iterable[Removal]) -> Iterator[Path]:
    """Removes files and folders, and empty parents of run folders; yields each.

    Raises:
        Busy: a process has started in a run folder meanwhile.
        OSError: something cannot be removed.
    """
    from dml.core.locks import try_lock  # late: lists need none

    for one in removals:
        with try_lock(one.run / "run.lock"):
            if one.path.is_dir():
                shutil.rmtree(one.path)
            else:
                one.path.unlink(missing_ok=True)
        if one.path == one.run and not any(one.run.parent.iterdir()):
            one.run.parent.rmdir()
        yield one.path
