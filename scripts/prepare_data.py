"""Prepares a dataset: `python scripts/prepare_data.py --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `scripts.studies`

from dml.cli.prepare_command import main
from scripts.studies.emoji.build import prepare_emoji

if __name__ == "__main__":
    sys.exit(main(build_emoji=prepare_emoji))
