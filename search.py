"""Finds the nearest neighbors of images: `python search.py --help`."""

import sys

import scripts.environment  # noqa: F401
from dml.cli.network_commands import search

if __name__ == "__main__":
    sys.exit(search())
