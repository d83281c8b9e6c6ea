"""Command that embeds images: `embed.py`, `dml-embed`."""

from __future__ import annotations

import argparse

from dml.cli.error_lines import report_errors
from dml.core.installation import shell_command

DESCRIPTION = """\
Embeds images with a trained or a pretrained network.

  {embed} <run folder> photos photos.npz
  {embed} timm:convnext_tiny list.csv photos.npz --float16

The .npz file holds `embeddings`, `paths`, `labels` (names of class folders, or of a column
label), and `made_by`. After an interruption the same command continues.
"""


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0 on success, 1 or 2 on a mistake, 130 interrupted."""
    parser = argparse.ArgumentParser(
        description=DESCRIPTION.format(embed=shell_command("embed")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "network", help="run folder, exported folder, name on the Hugging Face hub, timm:<model>"
    )
    parser.add_argument("images", help="folder, CSV file path[,label], text file of paths, image")
    parser.add_argument("output", help="<file>.npz")
    parser.add_argument("--features", action="store_true", help="pooled features of the backbone")
    parser.add_argument("--float16", action="store_true", help="half the size, three digits")
    parser.add_argument("--batch-size", type=positive, help="default: by device and size")
    parser.add_argument("--skip-corrupt", action="store_true", help="leave out damaged images")
    add_model_options(parser)
    parser.add_argument("--device", help="auto | cpu | cuda | cuda:<n>")
    options = {k: v for k, v in vars(parser.parse_args(argv)).items() if v is not None}
    options["dtype"] = "float16" if options.pop("float16") else "float32"
    from dml.runs.image_embeddings import embed  # imported late: --help need not load torch

    embeddings, _, labels, _ = embed(**options)
    classes = "" if labels is None else f", {len({*labels.tolist()})} classes"
    images, width = embeddings.shape
    print(f"{options['output']}  {images:,} images, {width} dimensions{classes}")
    return 0


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose one of a run's models."""
    for name in ("repeat", "fold"):
        parser.add_argument(f"--{name}", type=int, help="of a run with several models, from 0")


def positive(text: str) -> int:
    """Returns a positive whole number of the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)
