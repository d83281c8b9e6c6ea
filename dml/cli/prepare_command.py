"""Command that prepares a dataset: `scripts/prepare_data.py`, `dml-prepare`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dml.cli.error_lines import report_errors
from dml.cli.parser import make_parser, parse_path
from dml.core.errors import UserError, nearest
from dml.core.installation import shell_command
from dml.core.plain_text import print_plain
from dml.data.digits import read_digits
from dml.data.emoji import read_emoji
from dml.data.folder import read_folder
from dml.data.glyphs import read_glyphs
from dml.data.image_index import ImageIndex
from dml.data.shapes import read_shapes
from dml.data.sources import SOURCES

DESCRIPTION = """\
Prepares a dataset: {command} cub

Downloads (or uses --archive FILE), verifies, unpacks, counts and decodes all images; renders those
of emoji and shapes. A second call does nothing; after an interruption the same command continues.
"""
RENDERED: dict[str, Callable[[Path], ImageIndex]] = {"emoji": read_emoji, "shapes": read_shapes}
READERS: dict[str, Callable[[Path], ImageIndex]] = {
    **{name: dataset.read for name, dataset in SOURCES.items()},
    **RENDERED,
    "glyphs": read_glyphs,
    "digits": lambda root: read_digits(),
    "folder": read_folder,
}


@report_errors
def main(
    argv: list[str] | None = None,
    build: Callable[[str, Path, Sequence[Path]], None] | None = None,
) -> int:
    """Returns the exit status: 0 ready, 1 not ready, 130 interrupted.

    `build` renders a dataset of `RENDERED`; it is passed only in a checkout of the project.
    """
    parser = make_parser(DESCRIPTION.format(command=shell_command("prepare")))
    add, several = parser.add_argument, partial(parser.add_argument, action="append", default=[])
    add("dataset", help=" | ".join(READERS))
    add("--root", type=parse_path, default=Path("data"), help="default: data")
    several(
        "--archive", type=parse_path, help="a local file, or the folder of several; may be repeated"
    )
    several("--url", help="download from this URL instead; may be repeated")
    add("--check", action="store_true", help="decode every image that is present")
    options = parser.parse_args(argv)
    if options.dataset not in READERS:
        hint = nearest(options.dataset, READERS) or f"; one of {', '.join(READERS)}"
        parser.error(f"'{options.dataset}' is not a dataset{hint}")
    downloads = [*SOURCES, *RENDERED]
    if (options.archive or options.url) and (options.check or options.dataset not in downloads):
        parser.error(f"--archive and --url are for preparing {', '.join(downloads)}")
    if options.check:
        from dml.data.image_check import check_images  # imported late: it loads torch, as below
        from dml.data.image_index import describe_images

        index = READERS[options.dataset](options.root)
        notes = describe_images(check_images(index))
        print_plain(f"{options.dataset}: all {len(index.images):,} images can be decoded")
        for note in notes:
            print_plain(f"note: {note}")
    elif options.dataset in SOURCES:
        from dml.data.prepare import prepare

        prepare(SOURCES[options.dataset], options.root, options.archive, options.url)
    elif options.dataset in RENDERED:
        name = options.dataset
        if build is None:
            raise UserError(
                f"{name} can be prepared only in a checkout of the project, by python "
                f"scripts/prepare_data.py {name}; data={name} data.root=<folder> reads the result"
            )
        build(name, options.root, options.archive)
    else:
        index = READERS[options.dataset](options.root)
        print_plain(f"{options.dataset}: {len(index.images):,} images, nothing to download")
    return 0
