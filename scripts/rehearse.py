"""Runs every experiment in its smallest form, on stand-ins, to its report: make rehearsal

    python scripts/rehearse.py                          all experiments of the papers
    python scripts/rehearse.py mft_table2 ccp_figure4   some of them

Continues where it was stopped; experiments with problems are tried again. Writes
docs/results/rehearsal.md when all of them have been run.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import environment  # noqa: F401

from dml.cli.error_lines import report_errors
from dml.cli.parser import make_parser
from dml.core.atomic_io import output_folder, write_json, write_text
from dml.results.catalog import experiment_ids, load_experiment
from dml.runs.console import console
from scripts.studies.rehearsal import Rehearsal, rehearse, to_markdown

TITLE = """\
# Rehearsal of all experiments

Written by `make rehearsal`: the first cell of every method and protocol of each experiment,
with `scale=standin` on one CPU core, and the report of these runs. It shows that every experiment
runs to its report, on data that is not the paper's; the scores mean nothing.

"""


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 if nothing had problems, else 1."""
    parser = make_parser(__doc__)
    parser.add_argument("experiments", nargs="*", help="ids (default: all of the papers)")
    parser.add_argument("--outputs", type=Path, default=Path("outputs/rehearsal"))
    options = parser.parse_args(argv)
    papers = [id for id in experiment_ids() if load_experiment(id).source]
    stored = output_folder(options.outputs) / "rehearsal.json"
    found = _read(stored)
    console.quiet = True  # a line per experiment is enough
    for id in options.experiments or papers:
        if id in found and not found[id].problems:
            continue
        found[id] = rehearse(id, options.outputs)
        write_json(stored, [asdict(one) for one in found.values()])
        one = found[id]
        print(
            f"{id:18s} {one.runs} runs, {one.seconds:.0f} s",
            *one.problems,
            sep="\n    ",
            flush=True,
        )
    if set(found) >= set(papers):
        table = "\n".join(to_markdown([found[id] for id in papers]))
        write_text(Path("docs/results/rehearsal.md"), TITLE + table + "\n")
    return int(any(one.problems for one in found.values()))


def _read(path: Path) -> dict[str, Rehearsal]:
    if not path.exists():
        return {}
    return {one["id"]: Rehearsal(**one) for one in json.loads(path.read_text("utf-8"))}


if __name__ == "__main__":
    sys.exit(main())
