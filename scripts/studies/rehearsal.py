"""Rehearsal: every experiment in its smallest form, from its command to its report.

A cell of each method and protocol of the experiment is trained on a stand-in (`scale=standin`); the
report is then drawn from these runs. Finished runs are not repeated, so a rehearsal continues where
it was stopped.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from dml.config.check import check
from dml.config.schema import Config
from dml.core.atomic_io import write_text
from dml.core.errors import RunStopped, first_line
from dml.results.catalog import Cell, list_cells, load_experiment
from dml.results.figures import draw_figures
from dml.results.report import build_report
from dml.results.report_files import render_page
from dml.runs.experiment import run

STAND_IN = ("scale=standin", "device=cpu")


@dataclass
class Rehearsal:
    """Outcome of one experiment.

    Attributes:
        id: of the experiment.
        cells: of the experiment.
        runs: cells that were run.
        models: trained in these runs.
        seconds: of these runs and the report.
        problems: one line each; none if everything ran and the report shows every run.
    """

    id: str
    cells: int = 0
    runs: int = 0
    models: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


def rehearse(id: str, outputs: Path) -> Rehearsal:
    """Runs an experiment in its smallest form and draws its report.

    Args:
        id: of the experiment.
        outputs: folder of run folders; the report is written to `outputs/reports`.

    Raises:
        RunStopped: the rehearsal was asked to stop; it can be continued.
    """
    cells = list_cells(id, [*STAND_IN, f"outputs={outputs}"])
    result, started = Rehearsal(id, len(cells)), time.monotonic()
    for cell in select_cells(cells):
        try:
            run(cell.config, check(cell.config, Config))
        except RunStopped:
            raise
        except Exception as error:  # a defect of any kind is a result
            result.problems.append(f"{cell.command}: {first_line(error)}")
        else:
            result.runs += 1
            result.models += cell.trainings
    if script := load_experiment(id).script:
        result.problems += _run_script(script, cells)
    result.problems += _report_problems(id, cells, outputs, result.runs)
    result.seconds = time.monotonic() - started
    return result


def select_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Returns the first cell of each method and protocol."""
    first: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        first.setdefault((cell.config.method.name, cell.config.protocol.name), cell)
    return list(first.values())


def to_markdown(found: Sequence[Rehearsal]) -> Iterator[str]:
    """Yields the lines of the table of outcomes."""
    yield "| experiment | runs of cells | models | seconds | outcome |"
    yield "|---|---|---|---|---|"
    for one in found:
        outcome = "; ".join(one.problems).replace("|", "/") or "ran to its report"
        numbers = f"{one.runs} of {one.cells} | {one.models} | {one.seconds:.0f}"
        yield f"| {one.id} | {numbers} | {outcome} |"
    failed = sum(bool(one.problems) for one in found)
    runs, models = sum(one.runs for one in found), sum(one.models for one in found)
    minutes = sum(one.seconds for one in found) / 60
    yield ""
    yield (
        f"{len(found)} recipes, each run once in its smallest form; 0 reproduced on real data. "
        f"{runs} runs, {models} models, {minutes:.0f} minutes, {failed} with problems."
    )


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
    try:
        report = build_report(load_experiment(id), cells, outputs)
        page = render_page([report], {id: draw_figures(report)}, datetime.now())
    except Exception as error:
        yield f"report: {first_line(error)}"
        return
    write_text(outputs / "reports" / f"{id}.html", page)
    shown = report.frame.folder.nunique()
    if shown < runs:
        yield f"report: shows {shown} of {runs} runs"
