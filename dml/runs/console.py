"""The output of a run on the console: lines, and tables of scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table

from dml.config.identity import method_name
from dml.core.counts import count_of
from dml.core.metric_names import (
    OF_CATEGORIES,
    TEST_FMR,
    THRESHOLD,
    format_metric,
    is_score,
    metric_label,
    select_columns,
    tabled,
)
from dml.core.option_values import EXTRA_METRICS
from dml.core.plain_console import PlainConsole
from dml.core.plain_text import show_line
from dml.core.run_log import run_logger
from dml.core.secrets import mask_text
from dml.core.statistics import Estimate, mean_per_repeat

WIDEST = 1000  # columns of a terminal
MAP_AT_R = "map_at_r"
DASH = "\u2013"  # shown for missing numbers and values

console = PlainConsole(soft_wrap=True)
_name = ""


def name_lines(name: str) -> None:
    """Begins all following lines with the name of the run, until called with an empty name."""
    global _name
    _name = f"{name}  " if name else ""


def print_line(text: str, logged: bool = True) -> None:
    """Prints a line for the user and, unless `logged` is False, adds it to the log of the run."""
    console.print(mask_text(_name + text))
    if logged:
        run_logger.info(text)


def print_results(summary: dict[str, Any]) -> None:
    """Prints the scores of a run before and after training, also of joined models.

    The log gets those after training in a line.
    """
    if not summary["metrics"]:
        print_line("no scores: all classes were trained on")
        return
    joined = summary["concatenated"]
    columns = _columns_of_run(summary)
    name = method_name(summary["loss"], summary["method"])
    title = f"{summary['data']}: {name} ({summary['protocol']})"
    caption = f"percent on {summary['classes_tested']}; best epoch by {summary['selected_by']}"
    _print_table(title, summary["stand_in"], caption, columns)
    names = summary["config"].get("evaluation", {}).get("metrics", {})
    means = {name: value["mean"] for name, value in summary["metrics"].items()}
    untrained_means = {name: value["mean"] for name, value in summary["untrained"].items()}
    _print_custom(names, means, untrained_means)
    _print_thresholds(means)
    if "categories" in summary:
        _print_categories(summary["categories"], joined and joined["categories"])
    if "compression" in summary["jobs"][0]:
        _print_compression(summary["jobs"][0]["compression"], len(summary["jobs"]))
    scores = []
    for name, cell in _format_scores(summary["metrics"], summary["jobs"]).items():
        scores.append(f"{metric_label(name)} {cell}")
    run_logger.info("scores: %s", ", ".join(scores))


def _columns_of_run(summary: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Returns title → cells of the scores before and after training, also of joined models.

    Without epochs both are the same, and shown once.
    """
    repeats = next(iter(summary["metrics"].values()))["repeats"]
    spread = ""
    if repeats == 2:
        spread = " (2 repeats)"
    elif repeats > 2:
        spread = f" (mean of {repeats} ± 95 %)"
    columns = {}
    title = "untrained"
    if summary["config"]["protocol"]["epochs"]:
        columns[title] = _format_scores(summary["untrained"])
        title = "trained"
    trained = _format_scores(summary["metrics"], summary["jobs"])
    joined = summary["concatenated"]
    if joined is None:
        columns[f"{title}{spread}"] = trained
    else:
        columns[f"separated {summary['embedding_size']}-d{spread}"] = trained
        after = _format_scores(joined["metrics"], joined["repeats"])
        columns[f"concatenated {joined['embedding_size']}-d{spread}"] = after
    return columns


def print_scores(result: dict[str, Any], names: Iterable[str] = ()) -> None:
    """Prints the scores of one evaluation, and the metrics of the user with some names."""
    metrics = result["metrics"]
    queries = count_of(metrics["queries"], "query", "queries")
    caption = f"{queries}, {metrics['queries_without_match']} without a match"
    cells = {name: f"{100 * v:.2f}" for name, v in metrics.items() if is_score(name)}
    _print_table(result["name"], result["stand_in"], caption, {"percent": cells})
    _print_custom(names, metrics, {})
    _print_thresholds(metrics)
    if "categories" in result:
        _print_categories(result["categories"])
    if "compression" in result:
        _print_compression(result["compression"])


def _print_custom(
    names: Iterable[str], numbers: Mapping[str, float], untrained: Mapping[str, float]
) -> None:
    """Prints a line for each number of the metrics of the user, which have these names."""
    for column in select_columns(numbers, names):
        line = f"{column}: {format_metric(column, numbers[column])}"
        if column in untrained:
            line += f" (untrained {format_metric(column, untrained[column])})"
        print_line(line)


def _print_thresholds(metrics: Mapping[str, float]) -> None:
    """Prints a line for each threshold of verification, which is a distance and no percentage."""
    for line in describe_thresholds(metrics):
        print_line(f"threshold   {line}")


def describe_thresholds(metrics: Mapping[str, float]) -> list[str]:
    """Returns a line for each threshold of verification: distance, and what images chose it."""
    lines = []
    for name, value in metrics.items():
        measure = name.removesuffix(THRESHOLD)
        if measure == name or measure not in EXTRA_METRICS:
            continue
        images = "the scored images"
        if f"{measure}{TEST_FMR}" in metrics:
            images = "validation images"
        lines.append(f"{metric_label(measure)}: distance {value:.6g}, by {images}")
    return lines


def _print_categories(
    scores: Mapping[str, Mapping[str, Any]], joined: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Prints a table of the scores of each category.

    Args:
        scores: category → its queries and scores, or statistics of them over repeats.
        joined: those of joined models.
    """
    table = Table(title=f"{_name}by category", caption="percent, means over queries")
    table.add_column("category")
    table.add_column("queries", justify="right")
    columns = [(scores, name, metric_label(name)) for name in OF_CATEGORIES]
    if joined is not None:
        for name in OF_CATEGORIES:
            columns.append((joined, name, f"{metric_label(name)} concatenated"))
    for _, _, heading in columns:
        table.add_column(heading, justify="right")
    for category, numbers in scores.items():
        cells = [_format_category(part[category].get(name)) for part, name, _ in columns]
        table.add_row(show_line(category), str(numbers["queries"]), *cells)
    _print_full_width(table)


def _print_compression(compression: Mapping[str, Any], models: int = 1) -> None:
    """Prints a table of the scores of smaller vectors, with intervals over classes.

    Args:
        compression: see `dml.retrieval.compression_scores`.
        models: of the run; the table is that of the first.
    """
    queries = count_of(compression["queries"], "query", "queries")
    caption = (
        f"percent (95 % interval over {compression['classes']} classes), {queries}; "
        f"fitted on {compression['fitted_on']}"
    )
    if compression["fitted_on_scored"]:
        caption += ", which favors project, pca and int8"
    title = f"{_name}bytes per vector"
    if models > 1:
        title += f", the first of {models} models"
    table = Table(title=title, caption=caption)
    table.add_column("vectors")
    table.add_column("bytes", justify="right")
    first = compression["rows"][0]
    for metric in first["metrics"]:
        table.add_column(metric_label(metric), justify="right")
    table.add_column(f"{metric_label(MAP_AT_R)} - {first['form']}", justify="right")
    for row in compression["rows"]:
        cells = []
        for values in row["metrics"].values():
            interval = values["low"], values["high"]
            cells.append(_format_interval(f"{100 * values['mean']:.2f}", *interval))
        values = row["metrics"][MAP_AT_R]
        interval = values["difference_low"], values["difference_high"]
        difference = _format_interval(f"{100 * values['difference']:+.2f}", *interval)
        cells.append("" if row is first else difference)
        table.add_row(row["form"], f"{row['bytes']:,}", *cells)
    _print_full_width(table)


def _format_interval(number: str, low: float | None, high: float | None) -> str:
    """Returns a number in percent with the bounds of its interval, `46.27 (44.10, 48.32)`."""
    if low is None or high is None:
        return number
    return f"{number} ({100 * low:.2f}, {100 * high:.2f})"


def _format_category(value: float | Mapping[str, Any] | None) -> str:
    """Returns a score or its mean over repeats in percent; a dash for none."""
    if value is None:
        return DASH
    mean = value["mean"] if isinstance(value, Mapping) else value
    return f"{100 * mean:.2f}"


def _format_scores(
    metrics: Mapping[str, Any], results: Sequence[Mapping[str, Any]] = ()
) -> dict[str, str]:
    """Scores in percent (`Estimate.format`) from the results of each repeat; without, the means."""
    cells = {}
    for name in filter(is_score, metrics):
        scores = [(result["repeat"], 100 * result["metrics"][name]) for result in results]
        values = mean_per_repeat(scores)
        cells[name] = Estimate(tuple(values.values()) or (100 * metrics[name]["mean"],)).format()
    return cells


def _print_table(
    title: str, stand_in: bool, caption: str, columns: Mapping[str, Mapping[str, str]]
) -> None:
    """Prints a table with a row per metric; missing values are shown as a dash."""
    mark = " — stand-in data" if stand_in else ""
    table = Table(title=f"{_name}{title}{mark}", caption=caption)
    table.add_column("metric")
    for heading in columns:
        table.add_column(heading, justify="right")
    for name, label in tabled(name for cells in columns.values() for name in cells).items():
        table.add_row(label, *(cells.get(name, DASH) for cells in columns.values()))
    _print_full_width(table)


def _print_full_width(table: Table) -> None:
    # On a terminal that is too narrow, long lines are better than numbers that are cut.
    full_width = console.measure(table, options=console.options.update(max_width=WIDEST)).maximum
    if full_width > console.width:
        table.width = full_width
    console.print(table)
