"""Prepares a dataset: `python scripts/prepare_data.py --help`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import environment  # noqa: F401

from dml.cli.prepare_command import main


def _build(name: str, root: Path, archives: Sequence[Path]) -> None:
    from scripts.studies.emoji.build import EMOJI  # imported late: it loads torch
    from scripts.studies.emoji.drawings import check_renderer
    from scripts.studies.packages import prepare_packages
    from scripts.studies.shapes import SHAPES

    if name == "emoji":
        prepare_packages(EMOJI, root, archives, check_renderer)
    else:
        prepare_packages(SHAPES, root, archives)


if __name__ == "__main__":
    sys.exit(main(build=_build))
