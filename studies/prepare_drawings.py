"""Renders a dataset of drawings from packages: python studies/prepare_drawings.py emoji

emoji are drawings of nine npm packages (with resvg-py, see pyproject.toml), shapes the objects of
the package pybullet. A second call does nothing; after an interruption the same command continues.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this clone
from scripts import clone  # noqa: F401, I001

from dml.cli.error_lines import report_errors
from dml.cli.parser import Parser, parse_path


@report_errors
def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 if the dataset is ready."""
    parser = Parser(__doc__)
    parser.add_argument("dataset", choices=("emoji", "shapes"))
    parser.add_argument("--root", type=parse_path, default=Path("data"), help="default: data")
    parser.add_argument(
        "--archive",
        type=parse_path,
        action="append",
        default=[],
        help="a package, or the folder of several; may be repeated (default: they are fetched)",
    )
    options = parser.parse(words)
    from studies.emoji.build import EMOJI  # imported late: it loads torch
    from studies.emoji.drawings import check_renderer
    from studies.packages import prepare_packages
    from studies.shapes import SHAPES

    if options.dataset == "emoji":
        prepare_packages(EMOJI, options.root, options.archive, check_renderer)
    else:
        prepare_packages(SHAPES, options.root, options.archive)
    return 0


if __name__ == "__main__":
    sys.exit(main())
