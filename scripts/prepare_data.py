"""Prepares a dataset: `python scripts/prepare_data.py --help`."""

import sys

import environment  # noqa: F401

from dml.cli.prepare_command import main
from scripts.studies.emoji.build import prepare_emoji

if __name__ == "__main__":
    sys.exit(main(build_emoji=prepare_emoji))
