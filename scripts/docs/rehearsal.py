"""Rehearsal of experiments: the first cell of each method and protocol, and its report."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from dml.config.check import check
from dml.config.compositions import compose_config
from dml.core.atomic_io import output_folder, write_text
from dml.core.errors import ConfigError, first_line, nearest
from dml.core.outputs import begins_with, check_output, has_mark, text_mark
from dml.core.plain_text import print_plain
from dml.results.catalog import Cell, experiment_ids, list_cells, load_experiment
from dml.results.figures import draw_figures
from dml.results.report import build_report
from dml.results.report_page import render_page
from dml.runs.console import console
from dml.runs.experiment import run
from scripts.docs.markdown import table

SUMMARY = Path("docs/results/rehearsal.md")
STAND_IN = ("scale=standin", "device=cpu")
PAGE = """\
# Rehearsal of all experiments

Written by `make rehearsal`: the first cell of every method and protocol of each experiment,
with `scale=standin` on one CPU core, and the report of these runs. It shows that every experiment
runs to its report, on data that is not the paper's; the scores mean nothing.

{table}

{count} recipes, each run once in its smallest form; 0 reproduced on real data. {runs} runs, \
{models} models, {minutes:.0f} minutes, {failed} with problems.
"""


def rehearse_all(experiments: Sequence[str], outputs: Path) -> int:
    """Rehearses experiments, prints a line for each, and returns 1 if one had problems, else 0.

    Args:
        experiments: ids; empty for all, which are also written to the summary.
        outputs: folder of the runs.
    """
    writes_summary = not experiments
    if writes_summary:
        check_output(SUMMARY, "rehearsal", (), begins_with(PAGE.partition("\n")[0]), hint="")
    console.quiet = True  # a line per experiment is enough
    ids = experiments or experiment_ids()
    check_ids(ids)  # before the first one trains
    rows, status = [], 0
    for id in ids:
        row = rehearse(id, output_folder(outputs))
        rows.append(row)
        print_plain(f"{id:18s} {row['runs']} runs, {row['seconds']:.0f} s", flush=True)
        for problem in row["problems"]:
            print_plain(f"    {problem}", flush=True)
            status = 1
    if writes_summary:
        write_text(SUMMARY, describe_rehearsal(rows))
    return status


def describe_rehearsal(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the page of a rehearsal of all experiments."""
    titles = ("experiment", "runs of cells", "models", "seconds", "outcome")
    cells = []
    totals: Counter[str] = Counter()
    for row in rows:
        totals["failed"] += bool(row["problems"])
        for name in ("runs", "models", "seconds"):
            totals[name] += row[name]
        outcome = "; ".join(row["problems"]).replace("|", "/") or "ran to its report"
        runs = f"{row['runs']} of {row['cells']}"
        cells.append((row["id"], runs, str(row["models"]), f"{row['seconds']:.0f}", outcome))
    return PAGE.format(
        table=table(titles, cells),
        count=len(rows),
        runs=totals["runs"],
        models=totals["models"],
        minutes=totals["seconds"] / 60,
        failed=totals["failed"],
    )


def check_ids(ids: Sequence[str]) -> None:
    """Raises ConfigError with a line for each experiment that does not exist."""
    known = experiment_ids()
    problems = []
    for id in ids:
        if id not in known:
            problems.append(f"experiment: no '{id}'{nearest(id, known)}")
    if problems:
        raise ConfigError(problems)


def rehearse(id: str, outputs: Path) -> dict[str, Any]:
    """Runs an experiment in its smallest form and writes its report to `outputs/reports`.

    Returns:
        `id`, `cells` of the experiment, `runs` (cells that were run), `models` and `seconds` of
        these runs, and `problems`: a line each; none if the report shows every run.

    Raises:
        RunStopped: the rehearsal was asked to stop; it can be continued.
    """
    cells = list_cells(id, [*STAND_IN, f"outputs={outputs}"])
    problems, models, runs, seconds = [], 0, 0, 0.0
    for cell in select_cells(cells):
        try:
            summary = run(check(compose_config(cell.overrides)))
        except Exception as error:  # a defect of any kind is a result
            problems.append(f"{cell.command}: {first_line(error)}")
        else:
            models += cell.trainings
            runs += 1
            seconds += summary["wall_seconds"]
    script = load_experiment(id).script
    if script:
        problems += _run_script(script, cells)
    problems += _report_problems(id, cells, outputs, runs)
    numbers = {"cells": len(cells), "runs": runs, "models": models, "seconds": seconds}
    return {"id": id, **numbers, "problems": problems}


def select_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Returns the first cell of each method and protocol."""
    first: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        options = cell.options
        first.setdefault((options.method.name, options.protocol.name), cell)
    return list(first.values())


def _run_script(script: str, cells: Sequence[Cell]) -> Iterator[str]:
    """Runs the script of an experiment, on its first run if it needs one; yields what fails."""
    folder = ""
    if cells:
        folder = str(cells[0].folder)
    words = [word.replace("<run folder>", folder) for word in shlex.split(script)]
    program = Path(__file__).resolve().parents[2] / words[1]
    command = [sys.executable, str(program), *words[2:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        _, _, reason = done.stderr.strip().rpartition("\n")
        yield f"{shlex.join(words)}: {reason or 'failed'}"


def _report_problems(id: str, cells: Sequence[Cell], outputs: Path, runs: int) -> Iterator[str]:
    """Writes the report; yields what fails, and a line if it does not show the runs."""
    path, origin = outputs / "reports" / f"{id}.html", f"rehearse {id}"
    try:
        check_output(path, "--outputs", (), has_mark(origin), hint="")
        report = build_report(load_experiment(id), cells, outputs)
        page = render_page([report], {id: draw_figures(report)}, datetime.now(), text_mark(origin))
    except Exception as error:
        yield f"report: {first_line(error)}"
        return
    write_text(path, page)
    shown = report.frame.folder.nunique()
    if shown < runs:
        yield f"report: shows {shown} of {runs} runs"
