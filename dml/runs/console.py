"""The output of a run on the console: lines, and tables of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from dml.config.identity import method_name
from dml.core.metric_names import is_retrieval_metric as is_score
from dml.core.metric_names import metric_label as title
from dml.core.run_logger import run_logger
from dml.core.statistics import Estimate, mean_per_repeat

DASH = "\u2013"  # shown for missing numbers and values

console = Console(highlight=False, soft_wrap=True)


def print_line(text: str, logged: bool = True) -> None:
    """Prints a line for the user, which the log of the run gets too unless `logged` is False."""
    console.print(text, markup=False, emoji=False)
    if logged:
        run_logger.info(text)


def print_results(summary: dict[str, Any]) -> None:
    """Prints the scores of a run as a table; the log gets them in a line."""
    console.print(_results_table(summary))
    trained = summary["metrics"], summary.get("jobs", ())
    scores = [
        f"{title(name)} {_format_score(name, *trained)}" for name in filter(is_score, trained[0])
    ]
    run_logger.info("scores: %s", ", ".join(scores))


def _results_table(summary: dict[str, Any]) -> Table:
    """A table of the scores before and after training, in percent; also of joined models."""
    repeats = next(iter(summary["metrics"].values()))["repeats"]
    stand_in = " — stand-in data" if summary["stand_in"] else ""
    name = method_name(summary["loss"], summary["method"])
    table = Table(
        title=f"{summary['data']}: {name} ({summary['protocol']}){stand_in}",
        caption=f"percent on {summary['classes_tested']}; best epoch by {summary['selected_by']}",
    )
    of = "" if repeats == 1 else f" (mean of {repeats} ± 95 %)" if repeats > 2 else " (2 repeats)"
    trained, joined = (summary["metrics"], summary.get("jobs", ())), summary["concatenated"]
    columns: dict[str, Any] = {"untrained": (summary["untrained"],)}
    if joined is None:
        columns[f"trained{of}"] = trained
    else:
        columns[f"separated {summary['embedding_size']}-d{of}"] = trained
        after = joined["metrics"], joined["repeats"]
        columns[f"concatenated {joined['embedding_size']}-d{of}"] = after
    table.add_column("metric")
    for column in columns:
        table.add_column(column, justify="right")
    for name in filter(is_score, summary["metrics"]):
        table.add_row(title(name), *(_format_score(name, *scores) for scores in columns.values()))
    return table


def _format_score(
    name: str, metrics: Mapping[str, Any], results: Sequence[Mapping[str, Any]] = ()
) -> str:
    """A score in percent (`Estimate.format`) from the results of each repeat; without, its mean.

    A dash for what was not measured: `evaluation.measures` of the untrained network.
    """
    if name not in metrics:
        return DASH
    values = mean_per_repeat((one["repeat"], 100 * one["metrics"][name]) for one in results)
    return Estimate(tuple(values.values()) or (100 * metrics[name]["mean"],)).format()


def scores_tables(result: dict[str, Any]) -> list[Table]:
    """Tables of the scores of one evaluation, in percent: two if there is a gallery."""
    stand_in = " — stand-in data" if result["stand_in"] else ""
    tables = [_scores_table(f"{result['name']}{stand_in}", result["metrics"])]
    if "metrics_without_split" in result:
        tables[0].title = f"{result['name']}{stand_in}: query against gallery"
        tables.append(_scores_table("without the split", result["metrics_without_split"]))
    return tables


def _scores_table(name: str, metrics: dict[str, Any]) -> Table:
    table = Table(
        title=name,
        caption=f"{metrics['queries']} queries, {metrics['queries_without_match']} without a match",
    )
    table.add_column("metric")
    table.add_column("percent", justify="right")
    for name, value in metrics.items():
        if is_score(name):
            table.add_row(title(name), f"{100 * value:.2f}")
    return table
