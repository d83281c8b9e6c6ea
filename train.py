"""Trains and evaluates one model, or a grid of them: `python train.py --help`."""

import sys

import scripts.environment  # noqa: F401
from dml.cli.train_command import main

if __name__ == "__main__":
    sys.exit(main())
