"""Scores a trained run or an off-the-shelf network: `python evaluate.py --help`."""

import sys

from dml.cli.evaluate_command import main

if __name__ == "__main__":
    sys.exit(main())
