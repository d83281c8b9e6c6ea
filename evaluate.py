"""Scores a trained run or an off-the-shelf network: `python evaluate.py --help`."""

import sys

import scripts.environment  # noqa: F401
from dml.cli.evaluate_command import main

if __name__ == "__main__":
    sys.exit(main())
