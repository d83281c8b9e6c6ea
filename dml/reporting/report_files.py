"""From names of experiments to tables in the terminal and files: what `scripts/report.py` does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

from dml.core.atomic_io import write_text
from dml.core.errors import UserError, nearest
from dml.reporting import catalog as experiments
from dml.reporting import tables
from dml.reporting.export import as_csv, markdown
from dml.reporting.finished_runs import experiments_with_runs
from dml.reporting.page import figures as figures_of
from dml.reporting.page import page
from dml.reporting.report import Report, build, elsewhere

FEW = 3  # experiments whose tables a terminal shows; of more it shows one line each


def report(wanted: Sequence[str], root: Path, out: Path, figures: bool = True) -> list[Path]:
    """Prints and writes the reports of some experiments.

    Args:
        wanted: ids; `all`; `single`, or any other folder of runs below `root`.
        root: where run folders are.
        out: folder of what is written.
        figures: False leaves out the pictures.

    Returns:
        The files that were written: HTML, Markdown, CSV.

    Raises:
        UserError: no such experiment, or nothing to report of `single`.
    """
    known = experiments.names()
    names = _resolved(wanted, known, root)
    reports = [_built(name, name in known, root) for name in names]
    console = Console(highlight=False, emoji=False, markup=False)
    if len(reports) > FEW:
        console.print(_overview(reports))
    else:
        for one in reports:
            console.print(tables.terminal(one, console.width))
            for line in tables.notes(one, tables.MOST_COMMANDS):
                console.print(line, soft_wrap=True)  # to be copied whole
    shown = {one.id: figures_of(one) for one in reports} if figures else {}
    stem = out / (names[0] if len(names) == 1 else "all" if "all" in wanted else "report")
    files = {
        stem.with_name(f"{stem.name}.html"): page(reports, shown, datetime.now()),
        stem.with_name(f"{stem.name}.md"): markdown(reports),
        stem.with_name(f"{stem.name}.csv"): as_csv(reports),
    }
    for path, text in files.items():
        write_text(path, text)
        console.print(f"written  {path}", soft_wrap=True)
    return list(files)


def _built(name: str, known: bool, root: Path) -> Report:
    if not known:
        return build(name, (), root, {})
    whole = experiments.composed((f"experiment={name}",)).experiment
    node = OmegaConf.to_container(whole, resolve=False)  # a cell's setting refers to its loss
    cells = experiments.cells(name, elsewhere(root))
    return build(name, cells, root, cast(dict[str, Any], node))


def _resolved(wanted: Sequence[str], known: Sequence[str], root: Path) -> list[str]:
    """Names without repeats, `all` spelled out."""
    with_runs = experiments_with_runs(root)
    there = [*known, *(name for name in with_runs if name not in known)]
    names: list[str] = []
    for name in wanted:
        if name == "all":
            names += there
        elif name in there:
            names.append(name)
        elif name == "single":
            raise UserError(f"single: no finished runs in {root / name}; python train.py makes one")
        else:
            hint = nearest(name, [*there, "all", "single"])
            raise UserError(f"experiment: no '{name}'{hint}; known are {', '.join(there)}")
    return list(dict.fromkeys(names))


def _overview(reports: Sequence[Report]) -> Table:
    table = Table()
    table.add_column("experiment", no_wrap=True)
    for name in ("cells", "missing", "left out"):
        table.add_column(name, justify="right")
    table.add_column("status")
    for one in reports:
        counts = [one.cells, len(one.missing), len(one.problems)]
        table.add_row(one.id, *(str(count or tables.DASH) for count in counts), one.status)
    return table
