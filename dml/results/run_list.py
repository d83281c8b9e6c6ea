"""Runs as tables: all of them, configurations by score, two in comparison, a sweep."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pandas as pd
from rich.filesize import decimal
from rich.text import Text

from dml.core.errors import ConfigError, UserError, describe_failure, nearest
from dml.core.installation import shell_command
from dml.core.metric_names import SAME, is_score, metric_label, tabled
from dml.core.progress import format_epoch
from dml.core.statistics import welch
from dml.results.frame import (
    GROUPS,
    NAMED,
    NAMES,
    common_names,
    differing_options,
    estimate,
    format_option,
    make_frame,
    one_per_run,
    option_columns,
)
from dml.results.nearest import find_nearest
from dml.results.tables import Cell, Column, Table, terminal_table
from dml.runs.folder.stored_run import State, is_run, read_run

PUBLISHED = "published (what differs)"
RANKED = ["data", "protocol", "selected_by"]  # runs are ranked if these are equal
# Where space is short, columns of the highest rank are left out first (`Column.rank`). Options in
# which runs differ have the ranks 20, 30, 40 …: two of them stay longer than the last five columns.
RANKS = {
    "name": 1, "data": 2, "MAP@R": 3, "protocol": 4, "method": 5, "backbone": 6, "age": 7,
    "epoch": 8, "untrained": 31, "P@1": 32, "size": 33, PUBLISHED: 34, "ids": 35,
}  # fmt: skip


def find_run(word: str, runs: pd.DataFrame) -> Any:
    """Returns the run with an id, the beginning of an id, a `name=`, or a folder.

    Raises:
        UserError: no run, or several.
    """
    if is_run(Path(word)):
        return one_per_run(make_frame([read_run(Path(word))])).iloc[0]
    found = runs[(runs.id == word) | (runs["name"] == word)]
    found = runs[runs.id.str.startswith(word)] if found.empty else found
    if found.empty or not word:
        hint = f"{shell_command('runs')} lists them"
        raise UserError(f"runs: '{word}' is neither the id, name or folder of a run; {hint}")
    if len(found) > 1:
        ids = ", ".join(found.id)
        raise UserError(f"runs: '{word}' means several runs: {ids}; type one of these ids")
    return found.iloc[0]


def select_runs(runs: pd.DataFrame, words: Sequence[str]) -> pd.DataFrame:
    """Returns the runs that meet all conditions: `loss=ms,mf*` `state=finished` `epochs=60`.

    A name is `state`, `id`, a group, or an option by its dotted name or its last part; one of the
    values must match, in which `*` stands for any characters.

    Raises:
        ConfigError: a name that no run has, or a state that does not exist.
    """
    for name, _, wanted in (word.partition("=") for word in words):
        if name in ("state", "id", *NAMES):
            texts = [[str(value)] for value in runs[name]]
        else:
            texts = [
                [format_option(v) for n, v in options.items() if f".{n}".endswith(f".{name}")]
                for options in runs.options
            ]
        if not any(texts) and len(runs):
            names = {part for one in runs.options for n in one for part in (n, n.split(".")[-1])}
            hint = nearest(name, {*names, *NAMES}) or "; filter by state, loss, seed, or any option"
            raise ConfigError([f"{name}: no run has such an option{hint}"])
        values = wanted.split(",")
        if name == "state":
            _check_states(values)
        runs = runs.loc[[any(_is_equal(t, v) for t in some for v in values) for some in texts]]
    return runs


def _check_states(values: Iterable[str]) -> None:
    """Raises ConfigError for a value, without `*`, that is no state of a run."""
    states = [str(state) for state in State]
    for value in values:
        if "*" not in value and value.lower() not in states:
            hint = nearest(value.lower(), states) or f"; one of {', '.join(states)}"
            raise ConfigError([f"state: '{value}' does not exist{hint}"])


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

    def texts(metric: str) -> list[str]:
        return ["" if pd.isna(value) else f"{value:.2f}" for value in runs.get(metric, ())]

    columns = [
        _column("id", runs.id),
        _column("state", [Cell(state, state) for state in runs.state]),
        *_option_columns(runs),
        *([_column("seed", seeds, right=True)] if len(set(seeds)) > 1 else []),
        *_score_columns(runs, texts),
        *_published_column(runs),
        _column("epoch", epochs, right=True),
        _column("age", list(map(format_age, runs.age)), right=True),
        _column("size", list(map(decimal, runs["size"])), right=True),
    ]
    names = common_names(runs)
    title = f"{len(runs)} run{'s' if len(runs) != 1 else ''}{order}{f': {names}' if names else ''}"
    problems = runs[runs.problem != ""].itertuples()
    lines = [Text(f"{run.id}  {run.problem}", "red") for run in problems]
    return [terminal_table(Table(title, columns), width), *lines]


def _column(title: str, texts: Sequence[str], right: bool = False) -> Column:
    return Column(title, texts, RANKS.get(title, 0), right)


def _published_column(runs: pd.DataFrame) -> list[Column]:
    """Returns the column of the nearest published numbers; none without any."""
    texts = [find_nearest(run) or "" for run in runs.run]
    return [_column(PUBLISHED, texts)] if any(texts) else []


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
        title = metric_label(SAME[0] if metric in SAME else metric)
        title += "" if classes == "test" else f" {classes[:3]}."
    metrics = {title: "score", "untrained": "untrained_map_at_r"}
    metrics |= {"MAP@R": "map_at_r", "P@1": "precision_at_1"} | {title: "score"}
    return [
        Column(name, cells, 0 if metric == "score" else RANKS[name], right=True)
        for name, metric in metrics.items()
        if (cells := texts(metric))
    ]


def _option_columns(runs: pd.DataFrame) -> list[Column]:
    """Returns columns of the names and options in which runs differ."""
    names = [" ".join(name.split())[:24] for name in runs["name"].astype(object).fillna("")]
    columns = [_column("name", names)] if len(set(names)) > 1 else []
    ranks = itertools.count(20, 10)
    return columns + [
        Column(title, texts, RANKS.get(title, 0) if title in GROUPS else next(ranks))
        for title, texts in option_columns(runs).items()
    ]


def rank_runs(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """Returns the rows of each finished configuration, best first within equal `RANKED`."""
    finished = frame[(frame.state == "finished") & (frame.evaluation != "concatenated")]
    groups = [own for _, own in finished.groupby("configuration", sort=False)]
    return sorted(groups, key=lambda own: (*own[RANKED].iloc[0], -own["score"].mean()))


def best_table(groups: Sequence[pd.DataFrame], width: int) -> list[Text]:
    """Returns the table of configurations (`rank_runs`), joined over seeds and repeats."""

    def texts(metric: str) -> list[str]:
        found = [estimate(own, metric) for own in groups if "untrained" not in metric]
        return ["" if one is None else one.format(2, "std") for one in found]

    first = pd.concat([own.head(1) for own in groups])
    ranks = first.groupby(RANKED).cumcount() + 1
    ids = [list(own.id.unique()) for own in groups]
    columns = [
        _column("rank", list(map(str, ranks)), right=True),
        *_option_columns(first),
        _column("runs", [str(len(own)) for own in ids], right=True),
        *_score_columns(first, texts),
        *_published_column(first),
        _column("ids", [" ".join([*own[:2], *("…" for _ in own[2:3])]) for own in ids]),
    ]
    by = " or ".join(f"{one} images" for one in first.selected_by.unique())
    spread = "± standard deviation over seeds and repeats, both values of two"
    text = f"percent; {spread}; ranked by {by}"
    return [terminal_table(Table(common_names(first), columns, text), width)]


def compare_runs(
    first: Any, second: Any, frame: pd.DataFrame, folder: Path, width: int
) -> list[Text]:
    """Returns tables and lines that compare two runs, and draws their curves.

    Runs of equal seeds are not paired in the test: what a seed draws differs between losses.

    Args:
        first, second: of `find_run`.
        frame: all runs, among which those with other seeds are found for the test.
        folder: of the picture.
        width: characters of the terminal.

    Raises:
        UserError: a run cannot be read.
    """
    runs = pd.DataFrame([first, second])
    for run in (first, second):
        if not run.options:
            raise UserError(f"compare: {run.id} is {run.state}: {run.problem or 'no config yet'}")
    rows = [
        (name, *(format_option(one.get(name, "")) for one in runs.options), "")
        for name in differing_options([*runs.options])
        if not name.endswith(NAMED[1:])
    ] or [("no option differs that decides the result", "", "", "")]
    metrics = tabled(filter(is_score, runs.dropna(axis=1, how="any")))
    scores = [
        (label, f"{first[n]:.2f}", f"{second[n]:.2f}", f"{second[n] - first[n]:+.2f}")
        for n, label in metrics.items()
    ]
    titles = ("option; test, percent", first.id, second.id, "difference")
    columns = map(Column, titles, zip(*rows, *scores, strict=True))
    shown = [terminal_table(Table("", [*columns], "", len(scores)), width), Text()]
    own = frame[frame.evaluation != "concatenated"]
    a, b = (estimate(own[own.configuration == one], "map_at_r") for one in runs.configuration)
    text = "no test: it needs two configurations, and two or more seeds or repeats of both"
    if runs.configuration.nunique() > 1 and a and b and min(a.n, b.n) > 1:
        p_value = welch(a.moments, b.moments)
        p = "all scores are equal" if p_value is None else f"p = {p_value:.3g}"
        text = (
            f"MAP@R of {a.n} and {b.n} models: {b.mean - a.mean:+.2f} points, {p} (Welch's t-test)"
        )
    shown.append(Text(text))
    if runs.selected_by.nunique() == 1:
        shown += _draw_curves(runs, folder / f"{first.id}-{second.id}.png")
    return shown


def _draw_curves(runs: pd.DataFrame, path: Path) -> list[Text]:
    """Draws the curves of runs, seeds joined; returns the line that names the picture."""
    from dml.results.figures import write_curves  # late: lists draw nothing
    from dml.runs.figures.drawing import check_picture

    first = runs.drop_duplicates("configuration")
    options, groups = pd.DataFrame(option_columns(first), index=first.configuration), {}
    for name, loss, key in first[["name", "loss", "configuration"]].itertuples(index=False):
        texts = [t if n in GROUPS else f"{n}={t}" for n, t in options.loc[key].items() if t]
        title = name if name and sum(first["name"] == name) == 1 else ", ".join(texts) or loss
        groups[title] = list(runs[runs.configuration == key].run)
    metric, _, classes = first.selected_by.iloc[0].partition(" on ")
    try:
        origin = f"curves {path.parent.name} {path.stem}"
        check_picture(path, "curves", origin=origin)
        drawn = write_curves(
            groups, metric, f"{common_names(runs)}, {classes} images", path, origin
        )
    except Exception as error:  # no picture is worth the table
        return [Text(f"note: the curves cannot be drawn: {describe_failure(error)}")]
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
        published = filter(None, map(find_nearest, frame.run[:1]))
        return [Text(f"published   {one.hint}") for one in published]
    groups = rank_runs(frame)
    runs = one_per_run(pd.concat(groups))
    shown = run_table(runs, width, ", best first")
    shown.append(Text(f"percent, at the best epoch by {', '.join(runs.selected_by.unique())}"))
    if len(groups) < len(runs):
        shown += [Text(), *best_table(groups, width)]
    same = runs[runs.selected_by == runs.selected_by.iloc[0]]
    ids = hashlib.sha256(" ".join(sorted(runs.id)).encode()).hexdigest()[:8]
    name = re.sub(r"[^\w.-]", "_", "-".join(option_columns(runs))[:40]).lstrip(".") or "seed"
    shown += _draw_curves(same, outputs / "sweeps" / f"{name}-{ids}" / "curves.png")
    return [*shown, Text(f"run folders {outputs}/*/*/*-<id>")]


def to_json(runs: pd.DataFrame) -> str:
    """Returns a list of objects: scores in percent, age in seconds, size in bytes."""
    plain = runs.drop(columns=["run", "configuration"])
    return str(plain.to_json(orient="records", indent=2, force_ascii=False))


def format_age(seconds: float) -> str:
    """Returns a duration in its largest unit: `3 d`, `2 h`, `5 min` or `0 s`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"
