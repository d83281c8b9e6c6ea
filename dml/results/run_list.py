"""Runs as tables: all of them, configurations by score, several in comparison, a sweep."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pandas as pd
from rich.filesize import decimal
from rich.text import Text

from dml.core.counts import count_of, verb_for
from dml.core.errors import ConfigError, UserError, describe_failure, nearest
from dml.core.installation import shell_command
from dml.core.metric_names import SAME, is_score, metric_label, tabled
from dml.core.option_values import SEEN_CLASSES
from dml.core.plain_text import encode
from dml.core.progress import format_epoch
from dml.core.statistics import Estimate, holm, welch
from dml.core.text_columns import plain_text_columns
from dml.results.frame import (
    GROUPS,
    NAMED,
    NAMES,
    SEEN,
    Runs,
    common_names,
    differing_options,
    estimate,
    format_option,
    join_runs,
    make_runs,
    one_per_run,
    option_columns,
)
from dml.results.nearest import find_nearest
from dml.results.tables import Cell, Column, Table, terminal_table
from dml.runs.folder.stored_run import State, StoredRun, find_unreadable, is_run, read_run

PUBLISHED = "published (what differs)"
RANKED = ["data", "protocol", "selected_by"]  # runs are ranked if these are equal
RANKED_NAMES = {"data": "dataset", "protocol": "protocol", "selected_by": "selection"}
NO_TEST = "no test: it needs two configurations, and two or more seeds or repeats of both"
OTHER_CLASSES = (
    f"no scores: those of some runs are of {SEEN_CLASSES} (protocol=closed_set), those of others "
    f"of unseen ones"
)
CORRECTED = (
    "differences of mean MAP@R over all seeds and repeats of a configuration: Welch's t-tests, p "
    "corrected for all of them by Holm's method"
)
PICTURE_IDS = 4  # in the name of a picture of a comparison
# Where space is short, columns of the highest rank are left out first (`Column.rank`). Options in
# which runs differ have the ranks 20, 30, 40 …: two of them stay longer than the last five columns.
RANKS = {
    "name": 1, "data": 2, "MAP@R": 3, "protocol": 4, "method": 5, "backbone": 6, "age": 7,
    "epoch": 8, "untrained": 31, "P@1": 32, "size": 33, PUBLISHED: 34, "ids": 35,
}  # fmt: skip


def find_run(word: str, runs: Runs) -> Runs:
    """Returns the run with an id, the beginning of an id, a `name=`, or a folder, as one row.

    Raises:
        UserError: no run, or several.
    """
    if word and find_unreadable(Path(word)):
        raise UserError(f"runs: {word} cannot be read: permission denied")
    if is_run(Path(word)):
        run = make_runs([read_run(Path(word))])
        return run.select(one_per_run(run.table))
    table = runs.table
    matching = table[(table.id == word) | (table["name"] == word)]
    if matching.empty:
        matching = table[table.id.str.startswith(word)]
    if matching.empty or not word:
        hint = f"{shell_command('runs')} lists them"
        raise UserError(f"runs: '{word}' is neither the id, name or folder of a run; {hint}")
    if len(matching) > 1:
        ids = ", ".join(matching.id)
        raise UserError(f"runs: '{word}' means several runs: {ids}; type one of these ids")
    return runs.select(matching)


def select_runs(runs: Runs, words: Sequence[str]) -> Runs:
    """Returns the runs that meet all conditions: `loss=ms,mf*` `state=finished` `epochs=60`.

    A name is `state`, `id`, a group, or an option: its dotted name or the last part of it. A run
    meets a condition if it has any of the values, in which `*` stands for any characters.

    Raises:
        ConfigError: a name that no run has, or a state that does not exist.
    """
    for word in words:
        name, _, wanted = word.partition("=")
        texts = _option_texts(runs, name)
        if not any(texts) and not runs.table.empty:
            hint = _suggest_option(runs, name)
            raise ConfigError([f"{name}: no run has such an option{hint}"])
        values = wanted.split(",")
        if name == "state":
            _check_states(values)
        is_chosen = [_has_value(texts_of_run, values) for texts_of_run in texts]
        runs = runs.select(runs.table.loc[is_chosen])
    return runs


def _option_texts(runs: Runs, name: str) -> list[list[str]]:
    """Returns the values of a name, as texts, for each run.

    A column has one value per run. An option is meant by its dotted name or the last parts of it:
    a run without such an option has no value, and a run with several has them all.
    """
    if name in ("state", "id", *NAMES):
        return [[str(value)] for value in runs.table[name]]
    texts = []
    for options in runs.options:
        texts_of_run = []
        for option, value in options.items():
            if option == name or option.endswith(f".{name}"):
                texts_of_run.append(format_option(value))
        texts.append(texts_of_run)
    return texts


def _suggest_option(runs: Runs, name: str) -> str:
    """Returns the end of a message about a name that no run has."""
    names = set(NAMES)
    for options in runs.options:
        for option in options:
            names.add(option)
            names.add(option.rpartition(".")[2])
    return nearest(name, names) or "; filter by state, loss, seed, or any option"


def _has_value(texts: Sequence[str], values: Sequence[str]) -> bool:
    return any(_is_equal(text, value) for text, value in product(texts, values))


def _check_states(values: Iterable[str]) -> None:
    """Raises ConfigError for a value, without `*`, that is no state of a run."""
    states = [str(state) for state in State]
    for value in values:
        if "*" not in value and value.lower() not in states:
            hint = nearest(value.lower(), states) or f"; one of {', '.join(states)}"
            raise ConfigError([f"state: '{value}' does not exist{hint}"])


def _is_equal(text: str, value: str) -> bool:
    try:
        return float(text) == float(value)
    except ValueError:
        return fnmatchcase(text.lower(), value.lower())


def run_table(runs: Runs, width: int, order: str = "") -> list[Text]:
    """Returns the table of runs, and a line for each problem; `order` is for the title."""
    table = runs.table

    def texts(metric: str) -> list[str]:
        return [_number_text(value) for value in table.get(metric, ())]

    columns = [_column("id", table.id)]
    columns.append(_column("state", [Cell(state, state) for state in table.state]))
    columns += _option_columns(runs)
    columns += _seed_column(table)
    columns += _score_columns(table, texts)
    columns += _published_column(runs)
    columns.append(_epoch_column(table))
    columns.append(_column("age", list(map(format_age, table.age)), right=True))
    columns.append(_column("size", list(map(decimal, table["size"])), right=True))
    title = "1 run" if len(table) == 1 else f"{len(table)} runs"
    title += order
    names = common_names(runs)
    if names:
        title += f": {names}"
    shown = [terminal_table(Table(title, columns), width)]
    for run in table[table.problem != ""].itertuples():
        shown.append(Text(f"{run.id}  {run.problem}", "red"))
    return shown


def _column(title: str, texts: Sequence[str], right: bool = False) -> Column:
    return Column(title, texts, RANKS.get(title, 0), right)


def _number_text(value: float) -> str:
    return "" if pd.isna(value) else f"{value:.2f}"


def _seed_column(runs: pd.DataFrame) -> Iterator[Column]:
    """Yields the column of seeds, unless all runs have the same."""
    seeds = runs.seed.astype("string").fillna("")
    if seeds.nunique() > 1:
        yield _column("seed", seeds, right=True)


def _epoch_column(runs: pd.DataFrame) -> Column:
    """Returns the best epoch, or the last of an unfinished run, and the planned number."""
    texts = []
    for epoch, planned in zip(runs.epoch, runs.epochs, strict=True):
        texts.append("" if pd.isna(epoch) else f"{format_epoch(epoch)}/{planned}")
    return _column("epoch", texts, right=True)


def _published_column(runs: Runs) -> Iterator[Column]:
    """Yields the column of the nearest published numbers, if any run has one."""
    texts = [find_nearest(run) or "" for run in runs.by_row]
    if any(texts):
        yield _column(PUBLISHED, texts)


def _score_columns(runs: pd.DataFrame, texts: Callable[[str], list[str]]) -> list[Column]:
    """Returns the score that selects the epoch, and test scores, before training too.

    Args:
        runs: rows of the table.
        texts: returns the cells for a metric; an empty list leaves its column out.
    """
    selected = _selected_title(runs)
    metrics = {
        selected: "score",
        "untrained": "untrained_map_at_r",
        "MAP@R": "map_at_r",
        "P@1": "precision_at_1",
    }
    metrics[selected] = "score"  # also where it is `MAP@R` of test images
    columns = []
    for title, metric in metrics.items():
        cells = texts(metric)
        if cells:
            rank = 0 if metric == "score" else RANKS[title]
            columns.append(Column(title, cells, rank, right=True))
    return columns


def _selected_title(runs: pd.DataFrame) -> str:
    """Returns the title of the score that selects: `MAP@R val.`, or `MAP@R` of test images."""
    selected = runs.selected_by.dropna().unique()
    if len(selected) != 1:
        return "selected"
    metric, _, classes = selected[0].partition(" on ")
    label = metric_label(SAME[0] if metric in SAME else metric)
    return label if classes == "test" else f"{label} {classes[:3]}."


def _option_columns(runs: Runs) -> list[Column]:
    """Returns columns of the names and options in which runs differ."""
    columns = []
    names = []
    for name in runs.table["name"].astype(object).fillna(""):
        names.append(" ".join(name.split())[:24])
    if len(set(names)) > 1:
        columns.append(_column("name", names))
    next_rank = 20
    for title, texts in option_columns(runs).items():
        if any(text.endswith(SEEN) for text in texts):
            columns.append(Column(title, texts))  # however narrow the table
        elif title in GROUPS:
            columns.append(_column(title, texts))
        else:
            columns.append(Column(title, texts, next_rank))
            next_rank += 10
    return columns


def rank_runs(runs: Runs) -> list[Runs]:
    """Returns the rows of each finished configuration, best first within equal `RANKED`."""
    table = runs.table
    finished = table[(table.state == "finished") & (table.evaluation != "concatenated")]
    groups = [rows for _, rows in finished.groupby("configuration", sort=False)]
    groups.sort(key=_rank_key)
    return list(map(runs.select, groups))


def _rank_key(rows: pd.DataFrame) -> tuple:
    return (*rows[RANKED].iloc[0], -rows["score"].mean())


def best_table(groups: Sequence[Runs], width: int) -> list[Text]:
    """Returns the table of configurations (`rank_runs`), joined over seeds and repeats."""
    tables = [runs.table for runs in groups]

    def texts(metric: str) -> list[str]:
        return [] if "untrained" in metric else [_estimate_text(rows, metric) for rows in tables]

    first = pd.concat([rows.head(1) for rows in tables])
    runs = groups[0].select(first)
    ranks = first.groupby(RANKED).cumcount() + 1
    counts = []
    ids = []
    for rows in tables:
        different = list(rows.id.unique())
        counts.append(str(len(different)))
        ids.append(_first_ids(different))
    columns = [_column("rank", list(map(str, ranks)), right=True)]
    columns += _option_columns(runs)
    columns.append(_column("runs", counts, right=True))
    columns += _score_columns(first, texts)
    columns += _published_column(runs)
    columns.append(_column("ids", ids))
    by = " images or ".join(first.selected_by.unique())
    spread = "± 95 % interval over seeds and repeats, both values of two"
    text = f"percent; {spread}; ranked{_each_group(first)} by {by} images"
    return [terminal_table(Table(common_names(runs), columns, text), width)]


def _estimate_text(rows: pd.DataFrame, metric: str) -> str:
    estimated = estimate(rows, metric)
    return "" if estimated is None else estimated.format(2)


def _first_ids(ids: Sequence[str]) -> str:
    text = " ".join(ids[:2])
    return f"{text} …" if len(ids) > 2 else text


def compare_runs(compared: Sequence[Runs], runs: Runs, folder: Path, width: int) -> list[Text]:
    """Returns tables and lines that compare two or more runs, and draws their curves.

    Runs of equal seeds are not paired in the test: what a seed draws differs between losses.

    Args:
        compared: of `find_run`, at least two; without scores if some of them have seen the test
            classes, and others not.
        runs: all rows: those of the same configurations are tested.
        folder: of the picture.
        width: characters of the terminal.

    Raises:
        UserError: a run cannot be read.
    """
    chosen = join_runs(compared)
    for run in chosen.by_row:
        if not run.options:
            raise UserError(f"compare: {run.id} is {run.state}: {run.problem or 'no config yet'}")
    is_pair = len(compared) == 2
    rows = _option_rows(chosen.by_row)
    seen = {run.has_seen_classes for run in chosen.by_row}
    scores = _score_rows(chosen.table) if len(seen) == 1 else []
    rows += scores
    titles = ["option; test, percent", *chosen.table.id, "difference"]
    columns = []
    for number, (title, texts) in enumerate(zip(titles, zip(*rows, strict=True), strict=True)):
        rank = max(number - 2, 0)  # the first two runs are always shown
        if title != titles[-1]:
            columns.append(Column(title, texts, rank))
        elif is_pair:
            columns.append(Column(title, texts))
    shown = [terminal_table(Table("", columns, "", len(scores)), width), Text()]
    if len(seen) > 1:
        return [*shown, Text(OTHER_CLASSES)]
    shown.append(_test_compared(chosen.table, runs.table, width))
    if chosen.table.selected_by.nunique() == 1:
        shown += _draw_curves(chosen, folder / f"{_comparison_name(chosen.table.id)}.png")
    return shown


def _test_compared(chosen: pd.DataFrame, runs: pd.DataFrame, width: int) -> Text:
    """Returns the tests of compared runs, or why there is none.

    Args:
        chosen: a row per compared run.
        runs: all rows, in which their configurations may have other seeds and repeats.
        width: characters of the terminal.
    """
    differing = [RANKED_NAMES[name] for name in RANKED if chosen[name].nunique() > 1]
    if differing:
        names = " and ".join(differing)
        return Text(f"no test: the runs differ in {names}, not in their methods alone")
    if len(chosen) == 2:
        return Text(_test_configurations(chosen.configuration, runs))
    return _test_pairs(chosen, runs, width)


def _comparison_name(ids: Sequence[str]) -> str:
    """Returns the name of the picture of a comparison: its ids, the first ones of many."""
    name = "-".join(list(ids)[:PICTURE_IDS])
    if len(ids) <= PICTURE_IDS:
        return name
    others = hashlib.sha256(" ".join(ids).encode()).hexdigest()[:8]
    return f"{name}-and-{len(ids) - PICTURE_IDS}-{others}"


def _option_rows(runs: Sequence[StoredRun]) -> list[tuple[str, ...]]:
    """Returns the options in which runs differ, with their values, and an empty difference."""
    rows: list[tuple[str, ...]] = []
    options = [run.options for run in runs]
    for name in differing_options(options):
        if not name.endswith(NAMED[1:]):
            values = [format_option(mapping.get(name, "")) for mapping in options]
            rows.append((name, *values, ""))
    if not rows:
        rows.append(("no option differs that decides the result", *[""] * len(runs), ""))
    return rows


def _score_rows(runs: pd.DataFrame) -> list[tuple[str, ...]]:
    """Returns the scores that runs have in common, and last minus first."""
    rows: list[tuple[str, ...]] = []
    common = runs.dropna(axis=1, how="any")
    for name, label in tabled(filter(is_score, common)).items():
        scores = common[name].to_list()
        texts = [f"{score:.2f}" for score in scores]
        rows.append((label, *texts, f"{scores[-1] - scores[0]:+.2f}"))
    return rows


def _test_configurations(configurations: Iterable[str], table: pd.DataFrame) -> str:
    """Returns the outcome of a test between the runs of two configurations."""
    first, second = configurations
    if first == second:
        return NO_TEST
    return _describe_test(_estimate_of(first, table), _estimate_of(second, table))


def _estimate_of(configuration: str, table: pd.DataFrame) -> Estimate | None:
    """Returns MAP@R of the models of a configuration."""
    of_models = table[table.evaluation != "concatenated"]
    return estimate(of_models[of_models.configuration == configuration], "map_at_r")


def _test_pairs(compared: pd.DataFrame, table: pd.DataFrame, width: int) -> Text:
    """Returns the tests of all pairs of configurations, with p corrected by Holm.

    Args:
        compared: a row for each run; those of one configuration count once.
        table: all rows.
        width: characters of the terminal.
    """
    pairs = []
    p_values = []
    for first, second in combinations(compared.drop_duplicates("configuration").itertuples(), 2):
        before = _estimate_of(str(first.configuration), table)
        after = _estimate_of(str(second.configuration), table)
        if before is None or after is None:
            continue
        p_value = welch(before.moments, after.moments)
        if p_value is not None:
            difference = f"{after.mean - before.mean:+.2f}"
            pairs.append((first.id, second.id, difference, f"{p_value:.3g}"))
            p_values.append(p_value)
    if not pairs:
        return Text(NO_TEST)
    rows = []
    for pair, corrected in zip(pairs, holm(p_values), strict=True):
        rows.append((*pair, f"{corrected:.3g}"))
    titles = ("from", "to", "difference", "p", "p, corrected")
    columns = []
    for number, (title, texts) in enumerate(zip(titles, zip(*rows, strict=True), strict=True)):
        columns.append(Column(title, texts, right=number > 1))
    return terminal_table(Table("", columns, CORRECTED), width)


def _describe_test(first: Estimate | None, second: Estimate | None) -> str:
    """Returns the outcome of Welch's test, or what it lacks."""
    if first is None or second is None or min(first.n, second.n) < 2:
        return NO_TEST
    p_value = welch(first.moments, second.moments)
    p = "all scores are equal" if p_value is None else f"p = {p_value:.3g}"
    difference = f"{second.mean - first.mean:+.2f} points"
    return (
        f"MAP@R of {first.n} and {count_of(second.n, 'model')}: {difference}, {p} (Welch's t-test)"
    )


def _draw_curves(runs: Runs, path: Path) -> list[Text]:
    """Draws the curves of runs, seeds joined; returns the line that names the picture."""
    from dml.results.figures import write_curves  # late: lists draw nothing
    from dml.runs.figures.drawing import check_picture

    first = runs.table.drop_duplicates("configuration")
    titles = _curve_titles(runs.select(first))
    groups = {}
    for title, configuration in zip(titles, first.configuration, strict=True):
        same = runs.table[runs.table.configuration == configuration]
        groups[title] = runs.select(same).by_row
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


def _curve_titles(runs: Runs) -> list[str]:
    """Returns a title per configuration: its `name=`, or else names and options that differ."""
    columns = option_columns(runs)
    names = runs.table["name"]
    titles = []
    for n, (name, loss) in enumerate(zip(names, runs.table.loss, strict=True)):
        if name and sum(names == name) == 1:
            titles.append(name)
            continue
        texts = []
        for title, cells in columns.items():
            if cells[n]:
                texts.append(cells[n] if title in GROUPS else f"{title}={cells[n]}")
        titles.append(", ".join(texts) or loss)
    return titles


@plain_text_columns()
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
    stored = map(read_run, filter(is_run, dict.fromkeys(folders)))
    all_runs = make_runs([run for run in stored if run.state == State.FINISHED])
    if len(all_runs.stored) < 2:
        return list(_published_lines(all_runs.stored.values()))
    groups = rank_runs(all_runs)
    table = _sort_by_score(one_per_run(pd.concat([group.table for group in groups])))
    runs = all_runs.select(table)
    shown = run_table(runs, width, _describe_order(table))
    shown.append(Text(f"percent, at the best epoch by {', '.join(table.selected_by.unique())}"))
    shown += _rising_lines(table)
    if len(groups) < len(table):
        shown.append(Text())
        shown += best_table(groups, width)
    seen = pd.Series([run.has_seen_classes for run in runs.by_row], table.index)
    same = table[(table.selected_by == table.selected_by.iloc[0]) & (seen == seen.iloc[0])]
    ids = hashlib.sha256(" ".join(sorted(table.id)).encode()).hexdigest()[:8]
    varied = "-".join(option_columns(runs))
    name = re.sub(r"[^\w.-]", "_", varied[:40]).lstrip(".") or "seed"
    shown += _draw_curves(runs.select(same), outputs / "sweeps" / f"{name}-{ids}" / "curves.png")
    shown.append(Text(f"run folders {outputs}/*/*/*-<id>"))
    return shown


def _rising_lines(runs: pd.DataFrame) -> Iterator[Text]:
    """Yields a line that counts the runs whose last epoch is their best, if there are any."""
    is_last = (runs.epoch >= runs.epochs) & (runs.epochs > 0)
    count = int(is_last.fillna(False).sum())
    if count:
        verb = verb_for(count, "is best at its last epoch", "are best at their last epoch")
        text = f"note: {count} of {len(runs)} runs {verb} and may still rise"
        yield Text(f"{text}: more epochs (protocol.epochs) may change the order")


def _sort_by_score(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of runs best first, within equal `RANKED`; those without a score last."""
    ascending = [True] * len(RANKED) + [False]
    return runs.sort_values([*RANKED, "score"], ascending=ascending, kind="stable")


def _describe_order(runs: pd.DataFrame) -> str:
    """Returns the order of `_sort_by_score` for the title of a table."""
    return f", best first{_each_group(runs)}"


def _each_group(runs: pd.DataFrame) -> str:
    """Returns ` for each <names>` of what runs of `RANKED` differ in; empty for equal ones."""
    varied = [RANKED_NAMES[name] for name in RANKED if runs[name].nunique() > 1]
    return f" for each {' and '.join(varied)}" if varied else ""


def _published_lines(runs: Iterable[StoredRun]) -> Iterator[Text]:
    """Yields the published number that is nearest to each run, if there is any."""
    for run in runs:
        number = find_nearest(run)
        if number is not None:
            yield Text(f"published   {number.hint}")


def to_json(runs: Runs) -> str:
    """Returns a list of objects: all options, scores in percent, age in seconds, size in bytes."""
    plain = runs.table.map(_in_utf8)
    plain.insert(plain.columns.get_loc("configuration"), "options", runs.options)
    plain = plain.drop(columns="configuration")
    return str(plain.to_json(orient="records", indent=2, force_ascii=False))


def _in_utf8(value: Any) -> Any:
    return encode(value).decode() if isinstance(value, str) else value


def format_age(seconds: float) -> str:
    """Returns a duration in its largest unit: `3 d`, `2 h`, `5 min` or `0 s`."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{int(seconds)} s"
