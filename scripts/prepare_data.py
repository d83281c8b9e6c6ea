"""Prepares a dataset: `python scripts/prepare_data.py --help`."""

import sys
from collections.abc import Sequence
from pathlib import Path

import environment  # noqa: F401

from dml.cli.prepare_command import main


def _prepare_emoji(root: Path, archives: Sequence[Path]) -> None:
    from scripts.studies.emoji.build import prepare_emoji  # imported late: it loads torch

    prepare_emoji(root, archives)


if __name__ == "__main__":
    sys.exit(main(build_emoji=_prepare_emoji))
