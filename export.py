"""Exports the network of a run: `python export.py --help`."""

import sys

import scripts.environment  # noqa: F401
from dml.cli.network_commands import export

if __name__ == "__main__":
    sys.exit(export())
