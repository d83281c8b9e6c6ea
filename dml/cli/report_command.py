"""Command that compares results with published ones: `dml report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dml.cli.parser import (
    Parser,
    complete_experiment,
    parse_folder,
    parse_path,
    rarely_collect_garbage,
    refuse_outputs,
    set_completer,
)
from dml.core.installation import shell_command

DESCRIPTION = """\
Our results next to the published ones: {report} mft_table1

Takes ids of experiments, `all`, or `single` for runs without an experiment ({train} -m …).
Prints tables and writes an HTML page with its figures, Markdown and CSV to outputs/reports;
other users can show these runs with <id>_runs.csv of this folder (--results).
"""


def parser() -> Parser:
    """Returns the parser of the command."""
    text = DESCRIPTION.format(report=shell_command("report"), train=shell_command("train"))
    parser = Parser(text, "report")
    add, shared = parser.add_argument, "runs of other users, shown next to yours; may be repeated"
    experiments = add("experiments", nargs="+", metavar="experiment", help="id | all | single")
    set_completer(experiments, complete_experiment)
    add(
        "--runs",
        type=parse_folder,
        default=Path("outputs"),
        help="folder of runs (default: outputs)",
    )
    add("--out", type=parse_folder, help="folder of reports (default: <runs>/reports)")
    add("--no-figures", action="store_true", help="tables only, which is faster")
    add(
        "--results", type=parse_path, action="append", default=[], metavar="<file>.csv", help=shared
    )
    add("--latex", action="store_true", help="also write the tables for a paper: <id>.tex")
    add("--overwrite", action="store_true", help="replace any file (default: only such a report)")
    return parser


def main(words: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    command = parser()
    options = command.parse(words)
    refuse_outputs(options.experiments)
    command.refuse_without_dashes(options.experiments)
    rarely_collect_garbage()
    from dml.results.report_files import write_reports  # imported late: --help need not load torch

    out, figures = options.out or options.runs / "reports", not options.no_figures
    write_reports(
        options.experiments,
        options.runs,
        out,
        figures,
        options.results,
        options.overwrite,
        options.latex,
    )
    return 0
