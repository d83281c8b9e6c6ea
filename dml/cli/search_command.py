"""Command that finds the nearest neighbors of images, or near-duplicates: `dml search`."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import Any

from dml.cli.parser import Parser, whole_number
from dml.cli.shared_options import (
    add_current_folder,
    add_overwrite,
    add_trust,
    check_embeddings,
    refuse_empty,
)
from dml.core.csv_cells import write_csv
from dml.core.errors import ConfigError
from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.core.plain_text import print_exact, print_plain

DESCRIPTION = """\
Finds the nearest neighbors of images in a file of embeddings.

A query that is in the file is left out of its own neighbors; copies of it are marked.
--duplicates lists pairs of near-duplicates in the file, and their groups, instead.
"""
SHOWN = 50  # pairs, and groups, of a table
NEIGHBORS = 10


def parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(DESCRIPTION, "search")
    add = parser.add_argument
    add("embeddings", help="<file>.npz or .parquet")
    add("queries", nargs="*", metavar="query", help="image, or number of a row from 0")
    # The largest k, and that it is not 0, are checked with the file.
    add("-k", type=whole_number(0), help=f"neighbors (default: {NEIGHBORS})")
    add("--duplicates", action="store_true", help="near-duplicates in the file, without queries")
    add(
        "--max-distance",
        type=_distance,
        metavar="D",
        help="largest distance of near-duplicates (default: by the file's distances)",
    )
    add(
        "--index",
        action="store_true",
        help="use an index of faiss, saved beside the file: not exact",
    )
    add("--picture", metavar="<file>.png", help="draw queries and neighbors, or groups")
    largest = f"largest height x width of an image (default: {MAX_IMAGE_PIXELS:,})"
    add("--max-pixels", type=whole_number(1), default=MAX_IMAGE_PIXELS, metavar="N", help=largest)
    add_trust(parser, "the network that made the file")
    add("--csv", action="store_true", help="print CSV")
    add_overwrite(parser, "of a search in the same file")
    return parser


def main(words: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    options = vars(parser().parse(words))
    as_csv = options.pop("csv")
    refuse_empty(options)
    are_duplicates = options.pop("duplicates")
    _check_kind(options, are_duplicates)
    if options["trust"]:
        add_current_folder()
    check_embeddings(options["embeddings"])
    if are_duplicates:
        return _list_duplicates(options, as_csv)
    from dml.runs.image_embeddings import search  # imported late: --help need not load torch

    del options["max_distance"]
    if options["k"] is None:
        options["k"] = NEIGHBORS
    neighbors = search(**options)
    if options["picture"]:
        print_plain(f"picture     {options['picture']}", file=sys.stderr)
    if as_csv:
        _print_csv(neighbors)
    else:
        shown = neighbors.drop(columns="query_label").dropna(axis=1, how="all")
        print_plain(shown.to_string(index=False, float_format="%.4f"))
    return 0


def _distance(text: str) -> float:
    """Returns the value of `--max-distance`.

    Raises:
        ArgumentTypeError: it is no number of at least 0.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a distance of at least 0")
    return value


def _check_kind(options: dict[str, Any], are_duplicates: bool) -> None:
    """Raises ConfigError for options of a search that stand with `--duplicates`, or without it."""
    queries, neighbors = options["queries"], options["k"]
    if are_duplicates and queries:
        raise ConfigError([f"duplicates: all images are compared; leave out {queries[0]!r}"])
    if are_duplicates and neighbors is not None:
        raise ConfigError(["k: has no effect with --duplicates; leave it out"])
    if are_duplicates:
        return
    if not queries:
        raise ConfigError(["missing: query; give an image or the number of a row, or --duplicates"])
    if options["max_distance"] is not None:
        raise ConfigError(["max_distance: is that of near-duplicates; add --duplicates"])


def _list_duplicates(options: dict[str, Any], as_csv: bool) -> int:
    """Prints the near-duplicates of a file."""
    from dml.runs.near_duplicates import find_duplicates  # imported late, as above

    names = "embeddings", "max_distance", "picture", "index", "overwrite", "max_pixels"
    made = find_duplicates(**{name: options[name] for name in names})
    if options["picture"]:
        text = options["picture"] if len(made.groups) else "not written: there is no pair"
        print_plain(f"picture     {text}", file=sys.stderr)
    for line in made.describe():
        print_plain(line, file=sys.stderr)
    if as_csv:
        _print_csv(made.pairs)
        return 0
    for title, table in (("groups", made.groups), ("pairs", made.pairs)):
        if not len(table):
            continue
        shown = table.head(SHOWN).replace("", None).dropna(axis=1, how="all").fillna("")
        print_plain(shown.to_string(index=False, float_format="%.4f"))
        left = len(table) - len(shown)
        if left:
            print_plain(f"and {left:,} more {title}; --csv prints all pairs")
    return 0


def _print_csv(table: Any) -> None:
    """Prints a table as CSV."""
    text = write_csv(table)
    if sys.stdout.isatty():
        print_plain(text, end="")
    else:
        print_exact(text)  # programs get the paths as they are
