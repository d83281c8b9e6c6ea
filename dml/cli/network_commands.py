"""Commands that use a network: `embed.py`, `search.py`, `export.py`, and `dml-…` of these names."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dml.cli.error_lines import report_errors
from dml.cli.parser import PlainParser, positive
from dml.core.csv_cells import write_csv
from dml.core.errors import ConfigError
from dml.core.option_values import MAX_IMAGE_PIXELS
from dml.core.plain_text import print_exact, print_plain

NETWORK = "run folder, exported folder, or timm:<model>"


@report_errors
def embed(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 or 2 on a mistake, 130 interrupted."""
    parser = PlainParser(
        description="Embeds images. After an interruption the same command continues."
    )
    add = parser.add_argument
    add("network", help=NETWORK)
    add("images", help="folder, CSV file path[,label], text file of paths, image, or data=cub")
    add("output", help="<file>.npz or .parquet: embeddings, paths, labels and made_by")
    add("--features", action="store_true", help="pooled features of the backbone")
    add("--views", type=positive, default=0, metavar="N", help="also embed N augmentations of each")
    add("--float16", dest="dtype", action="store_const", const="float16", default="float32")
    add("--batch-size", type=positive, help="default: by device and size of the images")
    _add_overwrite(parser, "of the same network and images")
    add("options", nargs="*", help="backbone.input_size=64 (timm), data.max_pixels=400000000 …")
    _add_model(parser)
    _add_trust(parser, "the network")
    options = vars(parser.parse_intermixed_args(argv))
    _refuse_empty(options)
    _find_own_code(options["trust"])
    from dml.runs.image_embeddings import embed  # imported late: --help need not load torch

    images, width = embed(**options).embeddings.shape
    print_plain(f"{options['output']}  {images:,} images, {width} dimensions")
    return 0


@report_errors
def search(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 or 2 on a mistake, 130 interrupted."""
    parser = PlainParser(
        description="Finds the nearest neighbors of images in a file of embeddings. A query that "
        "is in the file is left out of its own neighbors; copies of it are marked."
    )
    add = parser.add_argument
    add("embeddings", help="<file>.npz or .parquet")
    add("queries", nargs="+", metavar="query", help="image, or number of a row from 0")
    add("-k", type=int, default=10, help="neighbors (default: 10)")
    add("--index", action="store_true", help="of faiss, saved beside the file, not exact")
    add("--picture", metavar="<file>.png", help="draw queries and neighbors")
    most = f"largest height x width of an image (default: {MAX_IMAGE_PIXELS:,})"
    add("--max-pixels", type=positive, default=MAX_IMAGE_PIXELS, metavar="N", help=most)
    _add_trust(parser, "the network that made the file")
    add("--csv", action="store_true", help="print CSV")
    _add_overwrite(parser, "of a search in the same file")
    options = vars(parser.parse_args(argv))
    as_csv = options.pop("csv")
    _refuse_empty(options)
    _find_own_code(options["trust"])
    from dml.runs.image_embeddings import search

    found = search(**options)
    if options["picture"]:
        print_plain(f"picture     {options['picture']}", file=sys.stderr)
    if as_csv:
        text = write_csv(found)
        if sys.stdout.isatty():
            print_plain(text, end="")
        else:
            print_exact(text)
    else:
        shown = found.drop(columns="query_label").dropna(axis=1, how="all")
        print_plain(shown.to_string(index=False, float_format="%.4f"))
    return 0


@report_errors
def export(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 or 2 on a mistake, 130 interrupted."""
    parser = PlainParser(
        description="Exports the network of a run, with a model card whose license is yours to "
        "fill in, to a folder that dml.load reads."
    )
    parser.add_argument("run_folder", metavar="run", help="run folder")
    parser.add_argument("folder", help="created if necessary; replaces an earlier export")
    _add_model(parser)
    _add_trust(parser, "the run")
    parser.add_argument("--onnx", action="store_true", help="also write model.onnx")
    options = parser.parse_args(argv)
    _refuse_empty(vars(options))
    _find_own_code(options.trust)
    from dml.runs.load import write_export

    made = write_export(**vars(options))
    advice = "fill in the license in README.md"
    if made.card_kept:
        advice = "README.md was edited and is kept; check that it describes this network"
    print_plain(f"exported    {made.folder}: {advice}")
    if made.difference is not None:
        print_plain(f"model.onnx  differs from PyTorch by at most {made.difference:.0e}")
    return 0


def _add_overwrite(parser: argparse.ArgumentParser, ours: str) -> None:
    text = f"replace any file (default: only one {ours})"
    parser.add_argument("--overwrite", action="store_true", help=text)


def _add_model(parser: argparse.ArgumentParser) -> None:
    for name in ("repeat", "fold"):
        parser.add_argument(f"--{name}", type=int, help="of a run with several models, from 0")


def _add_trust(parser: argparse.ArgumentParser, named: str) -> None:
    parser.add_argument(
        "--trust", action="store_true", help=f"{named} may name any class or function"
    )


def _find_own_code(trust: bool) -> None:
    """Lets a trusted folder name classes in files of the current folder, as in training."""
    here = os.getcwd()
    if trust and here not in sys.path:
        sys.path.append(here)  # installed packages take precedence


def _refuse_empty(options: Mapping[str, Any]) -> None:
    """Raises ConfigError for an empty text, which would be the current folder."""
    for name, value in options.items():
        texts = value if isinstance(value, list) else [value]
        if "" in texts:
            raise ConfigError([f"{name}: is empty; give it a name"])
