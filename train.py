"""Trains and evaluates one model, or a grid of them; the same as `dml train`."""

import sys

from dml.cli.entry_point import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
