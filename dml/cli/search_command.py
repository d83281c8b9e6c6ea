"""Command that finds the nearest neighbors of images: `dml search`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dml.cli.parser import Parser, positive_number, whole_number
from dml.cli.shared_options import (
    add_current_folder,
    add_overwrite,
    add_trust,
    check_embeddings,
    refuse_empty,
)
from dml.core.csv_cells import write_csv
from dml.core.errors import UserError
from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.core.plain_text import print_exact, print_plain

if TYPE_CHECKING:
    import pandas as pd

OF_PICTURE = ("picture", "overwrite")
DESCRIPTION = """\
Finds the nearest neighbors of images in a file of embeddings.

A query that is in the file is left out of its own neighbors; copies of it are marked.
With --classify: the class of each query by most of its neighbors, and by the nearest
class mean; unknown where none is nearer than --max-distance.
"""


def parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(DESCRIPTION, "search")
    add = parser.add_argument
    add("embeddings", help="<file>.npz or .parquet")
    add("queries", nargs="+", metavar="query", help="image, or number of a row from 0")
    # The largest k, and that it is not 0, are checked with the file.
    add("-k", type=whole_number(0), default=10, help="neighbors (default: 10)")
    add(
        "--index",
        action="store_true",
        help="use an index of faiss, saved beside the file: not exact",
    )
    limit = "leave out neighbors at this distance or beyond"
    add("--max-distance", type=positive_number, metavar="D", help=limit)
    add("--classify", action="store_true", help="print the class of each query, not neighbors")
    add("--picture", metavar="<file>.png", help="draw queries and neighbors")
    largest = f"largest height x width of an image (default: {MAX_IMAGE_PIXELS:,})"
    add("--max-pixels", type=whole_number(1), default=MAX_IMAGE_PIXELS, metavar="N", help=largest)
    add_trust(parser, "the network that made the file")
    add("--csv", action="store_true", help="print CSV")
    add_overwrite(parser, "of a search in the same file")
    return parser


def main(words: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    options = vars(parser().parse(words))
    as_csv, classifies = options.pop("csv"), options.pop("classify")
    refuse_empty(options)
    if options["trust"]:
        add_current_folder()
    check_embeddings(options["embeddings"])
    table = _classify(options) if classifies else _search(options)
    if as_csv:
        text = write_csv(table)
        if sys.stdout.isatty():
            print_plain(text, end="")
        else:
            print_exact(text)  # programs get the paths as they are
    elif len(table):
        shown = table if classifies else table.drop(columns="query_label")
        shown = shown.dropna(axis=1, how="all")
        print_plain(shown.to_string(index=False, float_format="%.4f"))
    return 0


def _search(options: dict[str, Any]) -> pd.DataFrame:
    """Returns the neighbors; prints the picture, and how many neighbors are left out."""
    from dml.runs.image_embeddings import search  # imported late: --help need not load torch

    neighbors = search(**options)
    if options["picture"]:
        print_plain(f"picture     {options['picture']}", file=sys.stderr)
    limit, all_neighbors = options["max_distance"], len(options["queries"]) * options["k"]
    if left_out := all_neighbors - len(neighbors):
        print_plain(
            f"note: {left_out} of {all_neighbors} neighbors are left out, at a distance of "
            f"{limit:g} or beyond (--max-distance)",
            file=sys.stderr,
        )
    return neighbors


def _classify(options: dict[str, Any]) -> pd.DataFrame:
    """Returns the classes of the queries, without a picture.

    Raises:
        UserError: a picture is asked for.
    """
    from dml.runs.image_embeddings import classify

    if options["picture"]:
        raise UserError("--picture: shows neighbors, not classes; leave out --classify for it")
    return classify(**{key: options[key] for key in options if key not in OF_PICTURE})
