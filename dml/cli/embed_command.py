"""Command that embeds images: `dml embed`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dml.cli.parser import Parser, whole_number
from dml.cli.shared_options import (
    add_current_folder,
    add_model,
    add_overwrite,
    add_trust,
    check_folder,
    check_images,
    check_network,
    refuse_empty,
)
from dml.cli.train_command import keep_memory_on
from dml.cli.word_order import check_order_of_embed
from dml.core.compression_forms import parse_form
from dml.core.counts import count_of
from dml.core.errors import ConfigError
from dml.core.plain_text import print_plain
from dml.core.tolerant_output import tolerant_output

DESCRIPTION = "Embeds images. After an interruption the same command continues."
NETWORK = "run folder, exported folder, hf:<user>/<name>, or timm:<model>"
IMAGES = "folder, CSV file path[,label], list of paths, tar, Parquet, image, or data=cub"


def parser() -> Parser:
    """Returns the parser of the command."""
    parser = Parser(DESCRIPTION, "embed")
    add = parser.add_argument
    add("network", help=NETWORK)
    add("images", help=IMAGES)
    add("output", help="<file>.npz or .parquet: embeddings, paths, labels and made_by")
    add("--features", action="store_true", help="pooled features of the backbone")
    add(
        "--views",
        type=whole_number(1),
        default=0,
        metavar="N",
        help="also embed N augmentations of each",
    )
    add(
        "--float16",
        dest="dtype",
        action="store_const",
        const="float16",
        default="float32",
        help="half the size of the file (default: float32)",
    )
    add(
        "--compress",
        metavar="FORM",
        help="store fewer bytes: project<N>, pca<N>, truncate<N>, float16, int8, binary, or two "
        "as project<N>+int8",
    )
    add(
        "--batch-size",
        type=whole_number(1),
        metavar="N",
        help="images per batch (default: by device and size of the images)",
    )
    add(
        "--skip-corrupt",
        action="store_true",
        help="leave out images that cannot be decoded, and list them",
    )
    add(
        "--thumbnails",
        type=whole_number(1),
        default=0,
        metavar="N",
        help="add JPEGs of N pixels and neighbors to a .parquet file, for viewers",
    )
    add(
        "--append",
        action="store_true",
        help="embed only new and changed images of a folder or list, and drop those that are gone",
    )
    add_overwrite(parser, "of the same network and images")
    add("options", nargs="*", help="backbone.input_size=64 (timm), data.max_pixels=400000000 …")
    add_model(parser)
    add_trust(parser, "the network")
    return parser


def main(words: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    command = parser()
    options = vars(command.parse(words))
    refuse_empty(options)
    check_order_of_embed(options["network"], options["images"], options["output"])
    command.refuse_without_dashes(options["options"])
    _check_form(options["compress"])
    if options["trust"]:
        add_current_folder()
    check_network(options["network"], options["trust"])
    check_folder(os.path.dirname(options["output"]) or ".", "output")
    check_images(options["images"])
    from dml.runs.image_embeddings import embed  # imported late: --help need not load torch

    keep_memory_on("auto")  # between batches, as in training
    with tolerant_output():
        images, width = embed(**options).embeddings.shape
        size = f"{count_of(images, 'image')}, {count_of(width, 'dimension')}"
        print_plain(f"{options['output']}  {size}")
    return 0


def _check_form(name: str | None) -> None:
    """Raises ConfigError if there is no form of this name, before torch is loaded."""
    if name is None:
        return
    try:
        parse_form(name)
    except ValueError as error:
        raise ConfigError([f"compress: {name!r} {error}"]) from error
