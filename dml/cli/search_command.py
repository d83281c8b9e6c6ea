"""Command that finds the nearest neighbors of images: `search.py`, `dml-search`."""

from __future__ import annotations

import argparse
import json

from dml.cli.embed_command import positive
from dml.cli.error_lines import report_errors
from dml.core.installation import shell_command

DESCRIPTION = """\
Finds the nearest neighbors of images in a file of embeddings ({embed}).

  {search} photos.npz new.jpg           a photo, embedded by the same network
  {search} photos.npz 0 17 -k 5         rows of the file, from 0
  {search} photos.npz new.jpg --picture found.png

The search is exact. A query that is in the file is left out of its own neighbors.
"""


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 or 2 on a mistake, 130 interrupted."""
    parser = argparse.ArgumentParser(
        description=DESCRIPTION.format(
            embed=shell_command("embed"), search=shell_command("search")
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("embeddings", help="<file>.npz")
    parser.add_argument("queries", nargs="+", metavar="query", help="image, or number of a row")
    parser.add_argument("--network", help="of the queries (default: the one that made the file)")
    parser.add_argument("-k", type=positive, default=10, help="neighbors (default: 10)")
    parser.add_argument("--picture", metavar="<file>.png", help="draw queries and neighbors")
    parser.add_argument("--device", default="auto", help="auto | cpu | cuda | cuda:<n>")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--csv", action="store_true", help="print CSV")
    kinds.add_argument("--json", action="store_true", help="print JSON")
    options = vars(parser.parse_args(argv))
    as_csv, as_json = options.pop("csv"), options.pop("json")
    from dml.runs.image_search import search  # imported late: --help need not load torch

    found = search(**options)
    if as_json:
        print(json.dumps(found.to_dict("records"), indent=2, ensure_ascii=False))
    elif as_csv:
        print(found.to_csv(index=False), end="")
    else:
        shown = found.drop(columns="query_label").dropna(axis=1, how="all")
        print(shown.to_string(index=False, float_format="%.4f"))
    return 0
