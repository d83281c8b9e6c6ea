"""What a run shows while it runs and when it is done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from dml.core.metric_names import is_retrieval_metric as is_score
from dml.core.metric_names import metric_label as title

console = Console(highlight=False, soft_wrap=True)


def results_table(summary: dict[str, Any]) -> Table:
    """The scores before and after training, in percent; one column more for joined models."""
    repeats = next(iter(summary["metrics"].values()))["repeats"]
    stand_in = " — stand-in data" if summary["stand_in"] else ""
    table = Table(
        title=f"{summary['data']}: {summary['result_id']} ({summary['protocol']}){stand_in}",
        caption=f"percent on {summary['classes_tested']}; best epoch by {summary['selected_by']}",
    )
    of = "" if repeats == 1 else f" (mean of {repeats} ± 95 %)"
    columns = {"untrained": summary["untrained"], f"trained{of}": summary["metrics"]}
    joined = summary["concatenated"]
    if joined is not None:
        columns = {
            "untrained": summary["untrained"],
            f"separated {summary['embedding_size']}-d{of}": summary["metrics"],
            f"concatenated {joined['embedding_size']}-d{of}": joined["metrics"],
        }
    table.add_column("metric")
    for column in columns:
        table.add_column(column, justify="right")
    for name in filter(is_score, summary["metrics"]):
        cells = [_cell(values[name], column) for column, values in columns.items()]
        table.add_row(title(name), *cells)
    return table


def _cell(value: dict[str, Any], column: str) -> str:
    """A mean with its interval, where there is one and the column is not the untrained one."""
    half = value["ci95"] if column != "untrained" else None
    return f"{100 * value['mean']:.2f}" + ("" if half is None else f" ± {100 * half:.2f}")


def scores_table(result: dict[str, Any]) -> list[Table]:
    """The scores of one evaluation, in percent; two tables where there is a gallery."""
    stand_in = " — stand-in data" if result["stand_in"] else ""
    tables = [_scores(f"{result['name']}{stand_in}", result["metrics"])]
    if "metrics_without_split" in result:
        tables[0].title = f"{result['name']}{stand_in}: query against gallery"
        tables.append(_scores("without the split", result["metrics_without_split"]))
    return tables


def _scores(name: str, metrics: dict[str, Any]) -> Table:
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


class Display:
    """A progress bar where someone watches, a line per evaluation where it goes to a file."""

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self.total = total
        self._bar: Progress | None = None
        self._task: Any = None
        self._score = ""

    @contextmanager
    def showing(self, start: int) -> Iterator[Display]:
        """Shows the bar from step `start` on."""
        if not console.is_terminal:
            yield self
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(
            *columns, TimeRemainingColumn(), console=console, transient=True
        ) as self._bar:
            self._task = self._bar.add_task(self.name, total=self.total, completed=start)
            yield self
        self._bar = None

    def step(self, step: int) -> None:
        """One step more."""
        if self._bar is not None:
            self._bar.update(self._task, completed=step, description=f"{self.name}{self._score}")

    def evaluated(self, metrics: dict[str, Any], select: str) -> None:
        """One evaluation more."""
        score = f"{title(select)} {100 * metrics[select]:.2f}"
        self._score = f"  {score}"
        if self._bar is None:
            loss = f"  loss {metrics['loss']:.4f}" if "loss" in metrics else ""
            console.print(f"{self.name}  epoch {metrics['epoch']:g}{loss}  {score}")
