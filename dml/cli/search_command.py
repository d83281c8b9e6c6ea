"""Command that finds the nearest neighbors of images: `dml search`."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dml.cli.parser import Parser, whole_number
from dml.cli.shared_options import (
    add_current_folder,
    add_overwrite,
    add_trust,
    check_embeddings,
    refuse_empty,
)
from dml.cli.word_order import check_order_of_search
from dml.core.counts import count_of, verb_for
from dml.core.csv_cells import write_csv, write_csv_columns
from dml.core.errors import ConfigError
from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.core.plain_table import fit_table, format_table
from dml.core.plain_text import print_exact, print_plain

if TYPE_CHECKING:
    import pandas as pd

    from dml.retrieval.file_search import Columns

OF_PICTURE = ("picture", "overwrite")
DESCRIPTION = """\
Finds the nearest neighbors of images in a file of embeddings.

A query that is in the file is left out of its own neighbors; copies of it are marked.
With --classify: the class of each query by most of its neighbors, and by the nearest
class mean; unknown where none is nearer than --max-distance.
With --duplicates, without queries: pairs of near-duplicates in the file, and their groups.
"""
INDEX = "--index"
AUTOMATIC_INDEX = "auto"  # as in dml.retrieval.file_index
SHOWN = 50  # pairs, and groups, of a table
NEIGHBORS = 10


def parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(DESCRIPTION, "search")
    add = parser.add_argument
    add("embeddings", help="<file>.npz or .parquet")
    add("queries", nargs="*", metavar="query", help="image, or number of a row from 0")
    add("-k", type=whole_number(1), help=f"neighbors (default: {NEIGHBORS})")
    add("--duplicates", action="store_true", help="near-duplicates in the file, without queries")
    add("--classify", action="store_true", help="print the class of each query, not neighbors")
    limit = (
        "leave out neighbors at this distance or beyond, and pairs of near-duplicates beyond it "
        "(default: no limit; of pairs one by the file's distances)"
    )
    add("--max-distance", type=_distance, metavar="D", help=limit)
    add(
        INDEX,
        metavar="=FACTORY",
        default=False,
        help="use an index of faiss, saved beside the file: not exact; --index alone is one of "
        "lists, --index=HNSW32 another of faiss's index factory",
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
    command = parser()
    options = vars(command.parse(_name_index(words)))
    refuse_empty(options)
    _check_queries(command, words, options)
    as_csv, classifies = options.pop("csv"), options.pop("classify")
    are_duplicates = options.pop("duplicates")
    if are_duplicates:
        _check_duplicates(options, classifies)
    else:
        _check_search(options, classifies)
    if options["trust"]:
        add_current_folder()
    check_embeddings(options["embeddings"])
    if are_duplicates:
        return _list_duplicates(options, as_csv)
    if options["k"] is None:
        options["k"] = NEIGHBORS
    columns = _classify(options) if classifies else _search(options)
    if as_csv:
        _print_csv(write_csv_columns(columns))
    elif len(columns["query"]):
        if not classifies:
            del columns["query_label"]
        print_plain(_show(columns))
    return 0


def _show(columns: Columns) -> str:
    """Returns a table as text, which fits a terminal as far as that loses nothing."""
    values = {title: list(column) for title, column in columns.items()}
    if not sys.stdout.isatty():
        return format_table(values)
    return fit_table(values, shutil.get_terminal_size().columns)


def _name_index(words: Sequence[str]) -> list[str]:
    """Returns the words in which `--index` alone, before any `--`, has its value."""
    named = []
    for place, word in enumerate(words):
        is_alone = word == INDEX and "--" not in words[:place]
        named.append(f"{word}={AUTOMATIC_INDEX}" if is_alone else word)
    return named


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


def _check_queries(command: Parser, words: Sequence[str], options: dict[str, Any]) -> None:
    """Raises ConfigError for queries that are the file of embeddings, or options."""
    queries = options["queries"]
    check_order_of_search(options["embeddings"], queries)
    absent = [query for query in queries if not query.isdecimal() and not os.path.exists(query)]
    command.refuse_without_dashes(absent)
    for word, next_word in pairwise(words):
        if word == INDEX and next_word in absent:
            raise ConfigError([f"{next_word}: write {INDEX}={next_word.lstrip('=')}"])


def _check_duplicates(options: dict[str, Any], classifies: bool) -> None:
    """Raises ConfigError for options that have no effect on near-duplicates."""
    queries = options["queries"]
    if queries:
        raise ConfigError([f"--duplicates: all images are compared; leave out {queries[0]!r}"])
    if classifies:
        raise ConfigError(["--classify: has no effect with --duplicates; leave one of them out"])
    if options["k"] is not None:
        raise ConfigError(["-k: has no effect with --duplicates; leave it out"])


def _check_search(options: dict[str, Any], classifies: bool) -> None:
    """Raises ConfigError for a search without queries or neighbors, or a picture of classes."""
    if not options["queries"]:
        raise ConfigError(["missing: query; give an image or the number of a row, or --duplicates"])
    if options["max_distance"] == 0:
        raise ConfigError(["--max-distance: 0 leaves out all neighbors; give a number above 0"])
    if classifies and options["picture"]:
        raise ConfigError(["--picture: shows neighbors, not classes; leave out --classify for it"])


def _search(options: dict[str, Any]) -> Columns:
    """Returns the neighbors; prints the picture, and how many neighbors are left out."""
    # Imported late: --help need not load NumPy.
    from dml.runs.file_queries import search_columns, select_matches

    columns = search_columns(**options)
    if options["picture"]:
        print_plain(f"picture     {options['picture']}", file=sys.stderr)
    limit, matches = options["max_distance"], columns["matches"]
    left_out = len(matches) - int(matches.sum())
    if left_out:
        print_plain(
            f"note: {left_out} of {count_of(len(matches), 'neighbor')} "
            f"{verb_for(left_out, 'is', 'are')} left out, at a distance of "
            f"{limit:g} or beyond (--max-distance)",
            file=sys.stderr,
        )
        _note_empty_queries(columns, len(options["queries"]))
    return select_matches(columns)


def _note_empty_queries(columns: Columns, count: int) -> None:
    """Prints a note for each query of which all neighbors are left out, of up to `SHOWN`.

    Args:
        columns: of `search_columns`.
        count: of the queries.
    """
    nearest = len(columns["row"]) // count
    empty = []
    for start in range(0, len(columns["row"]), nearest):
        if not columns["matches"][start : start + nearest].any():
            empty.append(start)
    for start in empty[:SHOWN]:
        print_plain(
            f"note: {columns['query'][start]}: no neighbors left (the nearest, "
            f"{columns['path'][start]}, is at a distance of {columns['distance'][start]:.4g})",
            file=sys.stderr,
        )
    if len(empty) > SHOWN:
        print_plain(f"note: and {len(empty) - SHOWN:,} more queries", file=sys.stderr)


def _classify(options: dict[str, Any]) -> Columns:
    """Returns the classes of the queries."""
    from dml.runs.file_queries import classify_columns

    return classify_columns(**{key: options[key] for key in options if key not in OF_PICTURE})


def _list_duplicates(options: dict[str, Any], as_csv: bool) -> int:
    """Prints the near-duplicates of a file."""
    from dml.runs.near_duplicates import find_duplicates

    names = "embeddings", "max_distance", "picture", "index", "overwrite", "max_pixels"
    made = find_duplicates(**{name: options[name] for name in names})
    if options["picture"]:
        text = options["picture"] if len(made.groups) else "not written: there is no pair"
        print_plain(f"picture     {text}", file=sys.stderr)
    for line in made.describe():
        print_plain(line, file=sys.stderr)
    if as_csv:
        _print_csv(write_csv(made.pairs))
        return 0
    for title, table in (("groups", made.groups), ("pairs", made.pairs)):
        if not len(table):
            continue
        shown = table.head(SHOWN).replace("", None).dropna(axis=1, how="all").fillna("")
        _print_table(shown)
        left = len(table) - len(shown)
        if left:
            print_plain(f"and {left:,} more {title}; --csv prints all pairs")
    return 0


def _print_table(table: pd.DataFrame) -> None:
    print_plain(table.to_string(index=False, float_format="%.4f"))


def _print_csv(text: str) -> None:
    if sys.stdout.isatty():
        print_plain(text, end="")
    else:
        print_exact(text)  # programs get the paths as they are
