"""Command that exports the network of a run: `dml export`."""

from __future__ import annotations

from collections.abc import Sequence

from dml.cli.parser import Parser
from dml.cli.shared_options import (
    add_current_folder,
    add_model,
    add_trust,
    check_folder,
    check_network,
    refuse_empty,
)
from dml.cli.word_order import check_order_of_export
from dml.core.plain_text import print_plain

DESCRIPTION = """\
Exports the network of a run, with a model card whose license is yours to fill in.

The folder is read by dml.load, and by the commands that take a network.
"""


def parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(DESCRIPTION, "export")
    parser.add_argument("run_folder", metavar="run", help="run folder")
    parser.add_argument("folder", help="created if necessary; replaces an earlier export")
    add_model(parser)
    add_trust(parser, "the run")
    add = parser.add_argument
    add("--onnx", action="store_true", help="also write model.onnx, and embed_onnx.py to run it")
    add("--torch-export", action="store_true", help="also write model.pt2, for torch alone")
    return parser


def main(words: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parser().parse(words)
    refuse_empty(vars(options))
    check_order_of_export(options.run_folder, options.folder)
    if options.trust:
        add_current_folder()
    check_network(options.run_folder, options.trust)
    check_folder(options.folder, "folder")
    from dml.runs.export import write_export  # imported late: --help need not load torch

    made = write_export(**vars(options))
    advice = "fill in the license in README.md"
    if made.card_kept:
        advice = "README.md was edited and is kept; check that it describes this network"
    print_plain(f"exported    {made.folder}: {advice}")
    for name, difference in made.differences.items():
        compared = f"differs from PyTorch by at most {difference:.0e}"
        if difference == 0:
            compared = "embeddings equal PyTorch's"
        print_plain(f"{name:<10}  {compared}")
    return 0
