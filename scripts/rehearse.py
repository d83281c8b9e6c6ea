"""Runs every experiment in its smallest form, on stand-ins, to its report: make rehearsal

    python scripts/rehearse.py                          all experiments of the papers
    python scripts/rehearse.py mft_table2 ccp_figure4   some of them

Trains the first cell of each method and protocol, and draws the report of these runs. Finished runs
are not repeated, so that the same command continues. Writes docs/results/rehearsal.md at the end of
all experiments.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import environment  # noqa: F401
import pandas as pd

from dml.cli.error_lines import report_errors
from dml.cli.parser import make_parser
from dml.config.check import check
from dml.config.schema import Config
from dml.core.atomic_io import output_folder, write_text
from dml.core.errors import ConfigError, first_line, nearest
from dml.core.outputs import begins_with, check_output, has_mark, text_mark
from dml.core.plain_text import print_plain
from dml.results.catalog import Cell, experiment_ids, list_cells, load_experiment
from dml.results.figures import draw_figures
from dml.results.report import build_report
from dml.results.report_files import render_page
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


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 if nothing had problems, else 1."""
    parser = make_parser(__doc__)
    parser.add_argument("experiments", nargs="*", help="ids (default: all of the papers)")
    parser.add_argument("--outputs", type=Path, default=Path("outputs/rehearsal"))
    options = parser.parse_args(argv)
    if not options.experiments:
        check_output(SUMMARY, "rehearsal", (), begins_with(PAGE.partition("\n")[0]), hint="")
    console.quiet = True  # a line per experiment is enough
    papers = [id for id in experiment_ids() if load_experiment(id).source]
    ids = options.experiments or papers
    check_ids(ids)  # before the first one trains
    rows = []
    for id in ids:
        row = rehearse(id, output_folder(options.outputs))
        rows.append(row)
        line = f"{id:18s} {row['runs']} runs, {row['seconds']:.0f} s"
        print_plain("\n    ".join([line, *row["problems"]]), flush=True)
    frame = pd.DataFrame(rows)
    failed = int(frame.problems.astype(bool).sum())
    if not options.experiments:
        titles = ("experiment", "runs of cells", "models", "seconds", "outcome")
        cells = [
            (one.id, f"{one.runs} of {one.cells}", str(one.models), f"{one.seconds:.0f}",
             "; ".join(one.problems).replace("|", "/") or "ran to its report")
            for one in frame.itertuples()
        ]  # fmt: skip
        sums = {"runs": frame.runs.sum(), "models": frame.models.sum(), "count": len(frame)}
        minutes = frame.seconds.sum() / 60
        text = PAGE.format(table=table(titles, cells), **sums, minutes=minutes, failed=failed)
        write_text(SUMMARY, text)
    return int(failed > 0)


def check_ids(ids: Sequence[str]) -> None:
    """Raises ConfigError with a line for each experiment that does not exist."""
    known = experiment_ids()
    problems = [f"experiment: no '{id}'{nearest(id, known)}" for id in ids if id not in known]
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
    problems, models, summaries = [], 0, []
    for cell in select_cells(cells):
        try:
            summaries.append(run(cell.config, check(cell.config, Config)))
        except Exception as error:  # a defect of any kind is a result
            problems.append(f"{cell.command}: {first_line(error)}")
        else:
            models += cell.trainings
    if script := load_experiment(id).script:
        problems += _run_script(script, cells)
    problems += _report_problems(id, cells, outputs, len(summaries))
    seconds = sum(one["wall_seconds"] for one in summaries)
    numbers = {"runs": len(summaries), "models": models, "seconds": seconds}
    return {"id": id, "cells": len(cells), **numbers, "problems": problems}


def select_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Returns the first cell of each method and protocol."""
    first: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        first.setdefault((cell.config.method.name, cell.config.protocol.name), cell)
    return list(first.values())


def _run_script(script: str, cells: Sequence[Cell]) -> Iterator[str]:
    """Runs the script of an experiment, on its first run if it needs one; yields what fails."""
    folder = str(cells[0].folder) if cells else ""
    words = [word.replace("<run folder>", folder) for word in script.split(" ", 2)]
    command = [sys.executable, *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"{shlex.join(words)}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}"


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


if __name__ == "__main__":
    sys.exit(main())
