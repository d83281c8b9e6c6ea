"""Trains and evaluates one model, or a grid of them; the same as `dml train`."""

import sys

from dml.cli.entry_point import run

if __name__ == "__main__":
    run(["train", *sys.argv[1:]])
