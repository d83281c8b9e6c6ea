"""Prepares a dataset: `python scripts/prepare_data.py --help`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import environment  # noqa: F401

from dml.cli.prepare_command import main


# The imports inside of functions load torch.
def _prepare_emoji(root: Path, archives: Sequence[Path]) -> None:
    from scripts.studies.emoji.build import EMOJI
    from scripts.studies.emoji.drawings import check_renderer
    from scripts.studies.packages import prepare_packages

    prepare_packages(EMOJI, root, archives, check_renderer)


def _prepare_shapes(root: Path, archives: Sequence[Path]) -> None:
    from scripts.studies.packages import prepare_packages
    from scripts.studies.shapes import SHAPES

    prepare_packages(SHAPES, root, archives)


if __name__ == "__main__":
    sys.exit(main(builders={"emoji": _prepare_emoji, "shapes": _prepare_shapes}))
