"""Commands that use a network: `embed.py`, `search.py`, `export.py`, and `dml-…` of these names."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from dml.cli.error_lines import report_errors

NETWORK = "run folder, exported folder, name on the Hugging Face hub, or timm:<model>"
DEVICE = "auto | cpu | cuda | cuda:<n>"


@report_errors
def embed(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 or 2 on a mistake, 130 interrupted."""
    parser = argparse.ArgumentParser(
        description="Embeds images. After an interruption the same command continues."
    )
    add = parser.add_argument
    add("network", help=NETWORK)
    add("images", help="folder, CSV file path[,label], text file of paths, image, or data=cub")
    add("output", help="<file>.npz or .parquet: embeddings, paths, labels and made_by")
    add("--features", action="store_true", help="pooled features of the backbone")
    add("--views", type=_positive, metavar="N", help="also embed N augmentations of each image")
    add("--seed", type=int, help="of the augmentations (default: 0)")
    add("--float16", dest="dtype", action="store_const", const="float16", help="half the size")
    add("--batch-size", type=_positive, help="default: by device and size of the images")
    add("--skip-corrupt", action="store_true", help="leave out images that cannot be decoded")
    add("--device", help=DEVICE)
    add("options", nargs="*", help="of a network of timm or a dataset: backbone.input_size=64")
    _add_model(parser)
    given = vars(parser.parse_intermixed_args(argv))
    options = {name: v for name, v in given.items() if v is not None}
    from dml.runs.image_embeddings import embed  # imported late: --help need not load torch

    made = embed(**options)
    classes = "" if made.labels is None else f", {len({*made.labels.tolist()})} classes"
    images, width = made.embeddings.shape
    print(f"{options['output']}  {images:,} images, {width} dimensions{classes}")
    return 0


@report_errors
def search(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 or 2 on a mistake, 130 interrupted."""
    parser = argparse.ArgumentParser(
        description="Finds the nearest neighbors of images in a file of embeddings. A query that "
        "is in the file is left out of its own neighbors; copies of it are marked."
    )
    add, kinds = parser.add_argument, parser.add_mutually_exclusive_group()
    add("embeddings", help="<file>.npz or .parquet")
    add("queries", nargs="+", metavar="query", help="image, or number of a row from 0")
    add("--network", help=f"of the queries: {NETWORK} (default: the one that made the file)")
    add("-k", type=_positive, default=10, help="neighbors (default: 10)")
    add("--index", choices=("flat", "hnsw", "ivf"), help="of faiss, saved (default: exact search)")
    add("--picture", metavar="<file>.png", help="draw queries and neighbors")
    add("--device", default="auto", help=DEVICE)
    kinds.add_argument("--csv", action="store_true", help="print CSV")
    kinds.add_argument("--json", action="store_true", help="print JSON")
    options = vars(parser.parse_args(argv))
    as_csv, as_json = options.pop("csv"), options.pop("json")
    from dml.runs.image_search import search

    found = search(**options)
    if as_json:
        print(json.dumps(found.to_dict("records"), indent=2, ensure_ascii=False))
    elif as_csv:
        print(found.to_csv(index=False), end="")
    else:
        hidden = ["query_label"] if found["duplicate"].any() else ["query_label", "duplicate"]
        shown = found.drop(columns=hidden).dropna(axis=1, how="all")
        print(shown.to_string(index=False, float_format="%.4f"))
    if options["index"]:
        print(f"the index finds {found.attrs['recall']:.1%} of exact neighbors", file=sys.stderr)
    return 0


@report_errors
def export(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 or 2 on a mistake, 130 interrupted."""
    parser = argparse.ArgumentParser(
        description="Exports the network of a run, with a model card whose license is yours to "
        "fill in, to a folder that dml.load reads."
    )
    parser.add_argument("run", help="run folder")
    parser.add_argument("folder", help="created if necessary")
    _add_model(parser)
    parser.add_argument("--onnx", action="store_true", help="also write model.onnx")
    parser.add_argument(
        "--push", metavar="<user>/<name>", help="upload to the hub, private at first"
    )
    options = parser.parse_args(argv)
    from dml.runs import model_export
    from dml.runs.load import export

    folder = export(options.run, options.folder, options.repeat, options.fold)
    print(model_export.write_card(options.run, folder))
    if options.onnx:
        difference = model_export.export_onnx(folder)
        checked = "onnxruntime is not installed" if difference is None else f"{difference:.0e}"
        print(f"{folder / model_export.ONNX}  largest difference from PyTorch: {checked}")
    if options.push:
        print(model_export.push(folder, options.push))
    return 0


def _add_model(parser: argparse.ArgumentParser) -> None:
    for name in ("repeat", "fold"):
        parser.add_argument(f"--{name}", type=int, help="of a run with several models, from 0")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)
